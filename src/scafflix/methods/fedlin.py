"""FedLin: Mitra, Jaafar, Pappas and Hassani, "Linear Convergence in Federated Learning: Tackling
Client Heterogeneity and Sparse Gradients" (2021), without sparse messages, on the functions f~_i.

A round of the paper is two exchanges, and counts as two rounds here. In the first, a round of one
step, clients send their gradients at x, which the server averages; in the second they make K local
steps, each corrected by the difference between its own gradient at x and the mean. Two points go
down and one comes up.

In the paper all clients take part. Here the server averages the last gradients of all clients, so
that a round of some of them still leads to the optimum. Each may have its own stepsize s_i:
distances are measured with weights 1/s_i, as in SCAFFOLD, of which this is option I.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jax.tree_util import Partial

from scafflix.core.errors import ScafflixError
from scafflix.core.types import Floats
from scafflix.methods.method import Client, Method, Number, Point
from scafflix.methods.scaffold import Sent, State, controls, init_client, local_step
from scafflix.theory import NO_RATE, Plan, check_plan, chosen_probability, chosen_stepsizes


class Server(NamedTuple):
    """The model, the mean of all clients' last gradients, and whether the round makes steps."""

    x: Point
    c: Point
    moves: Number


def init_server(x0: Point) -> Server:
    return Server(x0, 0 * x0, 0.0)


def broadcast(step: Number, server: Server) -> Sent:
    """x, and s times the mean gradient."""
    return Sent(server.x, step * server.c)


def upload(client: Client, state: State, sent: Sent, y: Point) -> tuple[Point, Number]:
    """After one step (c_i - grad f~_i(x)); after K of them (y_i - x) / s_i, plus one correction."""
    return (1 / client.step) * (y - sent.x + sent.shift), 1.0


def server_steps(server: Server, steps: Number) -> Server:
    return server._replace(moves=(steps > 1) * 1.0)


def combine(step: Number, server: Server, mean: Point, share: Number) -> Server:
    """First c = c + (|S| / n) mean(grad f~_i(x) - c_i), then x = x + mean(y_i - x)."""
    x = server.x + (step * server.moves) * (mean - server.c)
    return Server(x, server.c - (share * (1 - server.moves)) * mean, server.moves)


def commit(client: Client, state: State, sent: Sent, y: Point, after: Sent, steps: Number) -> State:
    """After the one step, c_i = grad f~_i(x)."""
    asked = (steps == 1) * 1.0
    return State(state.c + (asked / client.step) * (sent.x - y - sent.shift))


def by_turns(p: Number, rounds: Number, uniform: Number) -> Number:
    """One step in rounds 0, 2, ..., and K = 1/p in the others.

    >>> by_turns(0.2, np.arange(4), np.full(4, 0.5)).tolist()
    [1, 5, 1, 5]
    """
    return np.where(np.asarray(rounds) % 2, round(1 / float(p)), np.ones_like(uniform, int))


def fedlin(plan: Plan, stepsize: float | Floats | None = None, p: float | None = None) -> Method:
    """FedLin with K = 1/p local steps (rounded, at least 2) in every second round.

    The paper has s_i = 1/(6 K L~_i) or less, and then the rounds of GD up to a constant, each of
    two exchanges. The default is s_i = 1/(K L~_i), with which K steps get about as far as one of
    GD; nothing is claimed for it. Where no constants are known, the plan's stepsizes are taken as
    they are.
    """
    check_plan(plan)
    if p is not None and p == 1:
        raise ScafflixError("p is 1, with which fedlin makes no local steps; give p below 1.")
    p = 1 / max(2, round(1 / chosen_probability(p, plan.p)))
    advised = plan.gamma / plan.alpha**2
    steps = chosen_stepsizes(stepsize, p * advised if plan.known else advised, plan.n)
    common = 1 / float(np.mean(1 / steps))
    return Method(
        name="fedlin",
        settings={"p": p},
        gamma=steps * plan.alpha**2,
        limit=np.full(plan.n, np.inf),  # no theory to exceed
        p=2 / (1 + 1 / p),
        rate=NO_RATE,
        gradient=plan.gradient,
        made_for=plan.made_for,
        init_client=Partial(init_client),
        init_server=Partial(init_server),
        broadcast=Partial(broadcast, common),
        local_step=Partial(local_step),
        upload=Partial(upload),
        server_steps=Partial(server_steps),
        combine=Partial(combine, common),
        commit=Partial(commit),
        local_steps=Partial(by_turns, p),
        controls=Partial(controls),
    )
