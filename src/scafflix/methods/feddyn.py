"""FedDyn: Acar, Zhao, Matas, Mattina, Whatmough and Saligrama, "Federated Learning Based on Dynamic
Regularization" (2021), Algorithm 1, on the functions f~_i.

A client minimizes f~_i - <h_i, .> + (a/2) ||. - x||^2, with x from the server, and h_i becomes its
gradient where it ends; the server keeps h, the mean of all h_i, and steps against it. One point
travels each way.

The paper has one a (there called alpha) for all clients. Here a_i = lambda / s_i, with s_i the
stepsize of the client and lambda the same for all: distances are measured with weights 1/s_i, as in
i-Scaffnew. Equal s_i are the paper's case.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jax.tree_util import Partial

from scafflix.core.arguments import real_number
from scafflix.core.types import Floats
from scafflix.methods.i_scaffnew import State, controls, init_client
from scafflix.methods.method import Client, Method, Number, Point, Sent, geometric
from scafflix.theory import NO_RATE, Plan, check_plan, chosen_probability, chosen_stepsizes


class Server(NamedTuple):
    """The model, and the mean of all clients' h_i."""

    x: Point
    h: Point


def init_server(x0: Point) -> Server:
    """h = 0, the mean of h_i that sum to 0."""
    return Server(x0, 0 * x0)


def local_step(pull: Number, client: Client, state: State, sent: Sent, x: Point, g: Point) -> Point:
    """x_i = x_i - s_i (grad f~_i(x_i) - h_i + a_i (x_i - x)): a gradient step on what the paper has
    each client minimize."""
    return x - client.step * (client.alpha * g - state.h) - pull * (x - sent.x)


def upload(client: Client, state: State, sent: Sent, x: Point) -> tuple[Point, Number]:
    """x_i - x, here in units of s_i."""
    return (1 / client.step) * (x - sent.x), 1.0


def combine(pull: Number, step: Number, server: Server, mean: Point, share: Number) -> Server:
    """h = h - a (|S| / n) mean(x_i - x), then x = mean(x_i) - h / a."""
    h = server.h - (pull * share) * mean
    return Server(server.x + step * mean - (step / pull) * h, h)


def commit(
    pull: Number, client: Client, state: State, sent: Sent, x: Point, after: Sent, steps: Number
) -> State:
    """h_i = h_i - a_i (x_i - x): grad f~_i(x_i), if x_i is a minimizer."""
    return State(state.h - (pull / client.step) * (x - sent.x))


def feddyn(
    plan: Plan,
    stepsize: float | Floats | None = None,
    p: float | None = None,
    pull: float | None = None,
) -> Method:
    """FedDyn with a_i = `pull` / s_i, a number between 0 and 1.

    By default it is p (at most 1/2): about sqrt(mu L), at which the two ends of the spectrum are
    served equally well, and what 1/p local steps can follow. With s_i = (1 - pull)/L~_i a step
    suits the regularized function; where no constants are known the plan's stepsizes are taken as
    they are. The number of local steps is geometric, as in FedAvg; the paper's theorem is about
    exact minimizers and a far larger a, so no rate is claimed.
    """
    check_plan(plan)
    p = chosen_probability(p, plan.p)
    pull = real_number("pull", min(p, 0.5) if pull is None else pull, above=True, below=1)
    advised = plan.gamma / plan.alpha**2
    steps = chosen_stepsizes(stepsize, (1 - pull) * advised if plan.known else advised, plan.n)
    return Method(
        name="feddyn",
        settings={"p": p, "pull": pull},
        gamma=steps * plan.alpha**2,
        limit=np.full(plan.n, np.inf),  # no theory to exceed
        p=p,
        rate=NO_RATE,
        gradient=plan.gradient,
        made_for=plan.made_for,
        init_client=Partial(init_client),
        init_server=Partial(init_server),
        local_step=Partial(local_step, pull),
        upload=Partial(upload),
        combine=Partial(combine, pull, 1 / float(np.mean(1 / steps))),
        commit=Partial(commit, pull),
        local_steps=Partial(geometric, p),
        controls=Partial(controls),
    )
