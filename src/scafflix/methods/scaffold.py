"""SCAFFOLD: Karimireddy, Kale, Mohri, Reddi, Stich and Suresh, "SCAFFOLD: Stochastic Controlled
Averaging for Federated Learning" (2020), Algorithm 1 with option II, on the functions f~_i.

Every client keeps a control variate c_i, the mean of the gradients of its last local steps, and
the server keeps c, the mean of the c_i of all clients. Two points go down and two come up.

The paper has one local stepsize s for all clients. Here each may have its own s_i: distances are
measured with weights 1/s_i, as in i-Scaffnew, so that s becomes s_i before what is the client's
and the harmonic mean of all stepsizes before what is the server's. Equal s_i are the paper's case.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jax.tree_util import Partial

from scafflix.core.arguments import real_number
from scafflix.core.types import Floats
from scafflix.methods.method import Client, Method, Number, Point, every_time
from scafflix.theory import NO_RATE, Plan, check_plan, chosen_probability, chosen_stepsizes


class State(NamedTuple):
    """The control variate of a client, in the scale of f~_i."""

    c: Point


class Server(NamedTuple):
    """The model, and the mean of all clients' control variates."""

    x: Point
    c: Point


class Sent(NamedTuple):
    """The model, and s c: what the server's control variate adds to a local step."""

    x: Point
    shift: Point


def init_client(client: Client, x0: Point, h0: Point) -> State:
    return State(client.alpha * h0)


def init_server(x0: Point) -> Server:
    """c = 0, the mean of control variates that sum to 0."""
    return Server(x0, 0 * x0)


def broadcast(step: Number, server: Server) -> Sent:
    """Line 5: x and c."""
    return Sent(server.x, step * server.c)


def local_step(client: Client, state: State, sent: Sent, y: Point, g: Point) -> Point:
    """Line 10: y_i = y_i - s (g_i - c_i + c)."""
    return y - client.step * (client.alpha * g - state.c) - sent.shift


def change(p: Number, client: Client, sent: Sent, y: Point) -> Point:
    """Line 12: c_i+ - c_i = (x - y_i) / (K s) - c, option II, with p = 1/K."""
    return (1 / client.step) * (p * (sent.x - y) - sent.shift)


def upload(
    p: Number, client: Client, state: State, sent: Sent, y: Point
) -> tuple[tuple[Point, Point], Number]:
    """Line 13: y_i - x, here in units of s_i, and c_i+ - c_i."""
    return ((1 / client.step) * (y - sent.x), change(p, client, sent, y)), 1.0


def combine(step: Number, server: Server, mean: tuple[Point, Point], share: Number) -> Server:
    """Lines 16 and 17: x = x + s_g mean(y_i - x), c = c + (|S| / n) mean(c_i+ - c_i)."""
    move, change = mean
    return Server(server.x + step * move, server.c + share * change)


def commit(
    p: Number, client: Client, state: State, sent: Sent, y: Point, after: Sent, steps: Number
) -> State:
    """Line 14: c_i = c_i+."""
    return State(state.c + change(p, client, sent, y))


def controls(client: Client, state: State) -> Point:
    return (1 / client.alpha) * state.c


def scaffold(
    plan: Plan,
    stepsize: float | Floats | None = None,
    p: float | None = None,
    server_stepsize: float = 1.0,
) -> Method:
    """SCAFFOLD with K = 1/p local steps (rounded) in every round, and s_g = `server_stepsize`.

    Theory wants K s_g s_i below 1/L~_i by a constant factor, 81 in the paper. The default is s_i =
    1/(K L~_i), with which a round gets about as far as a round of GD: control variates are exact
    in the limit, and local steps bring no acceleration. Larger stepsizes often do, without proof.
    Where no constants are known, the plan's stepsizes are taken as they are.
    """
    check_plan(plan)
    p = 1 / round(1 / chosen_probability(p, plan.p))
    server_stepsize = real_number("server_stepsize", server_stepsize, above=True)
    advised = plan.gamma / plan.alpha**2
    steps = chosen_stepsizes(stepsize, p * advised if plan.known else advised, plan.n)
    common = 1 / float(np.mean(1 / steps))
    return Method(
        name="scaffold",
        settings={"p": p, "server_stepsize": server_stepsize},
        gamma=steps * plan.alpha**2,
        limit=np.full(plan.n, np.inf),  # beyond the paper's constant nothing is known
        p=p,
        rate=NO_RATE,
        gradient=plan.gradient,
        made_for=plan.made_for,
        init_client=Partial(init_client),
        init_server=Partial(init_server),
        broadcast=Partial(broadcast, common),
        local_step=Partial(local_step),
        upload=Partial(upload, p),
        combine=Partial(combine, server_stepsize * common),
        commit=Partial(commit, p),
        local_steps=Partial(every_time, p),
        controls=Partial(controls),
    )
