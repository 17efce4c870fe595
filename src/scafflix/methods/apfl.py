"""APFL: Deng, Kamani and Mahdavi, "Adaptive Personalized Federated Learning" (2020), Algorithm 1,
on the functions f~_i.

FedAvg finds w, and beside it every client trains a model v_i of its own such that the mixture
a_i v_i + (1 - a_i) w suits it; this mixture is what it takes home. The a_i is the paper's alpha_i;
another one than FLIX's, which mixes with the local optimum.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from jax.tree_util import Partial

from scafflix.core.arguments import real_number
from scafflix.core.errors import ScafflixError
from scafflix.core.vector import inner
from scafflix.methods import fedavg as averaging
from scafflix.methods.method import Client, Method, Number, Point, Points, Sent
from scafflix.personalization.mixing import mix
from scafflix.theory import Plan


class State(NamedTuple):
    """The client's own model, and its weight."""

    v: Point
    a: Number


class Local(NamedTuple):
    """The client's copy of the model of all, its own, and the weight of the latter."""

    w: Point
    v: Point
    a: Number


def init_client(weight: Number, client: Client, x0: Point, h0: Point) -> State:
    return State(x0, weight + 0 * inner(x0, x0))  # a number of the model's type


def begin(client: Client, state: State, sent: Sent) -> Local:
    """w_i = w; v_i and a_i are where they were."""
    return Local(sent.x, *state)


def asks(client: Client, state: State, sent: Sent, local: Local) -> tuple[Point, Point]:
    """Two gradients on one sample: at w_i, and at the mixture a_i v_i + (1 - a_i) w_i."""
    mixed = local.a * local.v + (1 - local.a) * local.w
    return mix(client.alpha, local.w, client.x_star), mix(client.alpha, mixed, client.x_star)


def local_step(client: Client, state: State, sent: Sent, local: Local, g: Points) -> Local:
    """w_i - gamma grad f~_i(w_i), v_i - gamma a_i grad f~_i(a_i v_i + (1 - a_i) w_i)."""
    at_w, at_mixed = g
    w = averaging.local_step(client, state, sent, local.w, at_w)
    v = local.v - (client.step * local.a * client.alpha) * at_mixed
    return Local(w, v, local.a)


def adaptive_step(
    adapt: Number, client: Client, state: State, sent: Sent, local: Local, g: Points
) -> Local:
    """The same, and with adapt = 1 also a_i - gamma <grad f~_i(a_i v_i + (1 - a_i) w_i),
    v_i - w_i>, within [0, 1]."""
    _, at_mixed = g
    slope = client.alpha * inner(at_mixed, local.v - local.w)
    a = local.a - adapt * client.step * slope
    a = a * (a > 0)
    return local_step(client, state, sent, local, g)._replace(a=a + (1 - a) * (a > 1))


def upload(client: Client, state: State, sent: Sent, local: Local) -> tuple[Point, Number]:
    return local.w, 1.0


def commit(
    client: Client, state: State, sent: Sent, local: Local, after: Sent, steps: Number
) -> State:
    return State(local.v, local.a)


def personal(client: Client, state: State, x: Point) -> Point:
    """a_i v_i + (1 - a_i) w."""
    return mix(client.alpha, state.a * state.v + (1 - state.a) * x, client.x_star)


def apfl(
    plan: Plan,
    stepsize: float | None = None,
    p: float | None = None,
    weight: float = 0.5,
    adapt: float = 0.0,
) -> Method:
    """APFL with a_i = `weight`, that of a client's own model; with 0, FedAvg.

    The a_i stay what they are unless `adapt` is above 0: 1 is the paper's rule for them, in every
    step, and another number multiplies its stepsize. While a_i is 0, v_i stands still.
    """
    base = averaging.fedavg(plan, stepsize, p)
    weight, adapt = real_number("weight", weight), real_number("adapt", adapt)
    if weight > 1:
        raise ScafflixError(f"weight is {weight:g}; it must be between 0 and 1.")
    return replace(
        base,
        name="apfl",
        settings={**base.settings, "weight": weight, "adapt": adapt},
        init_client=Partial(init_client, weight),
        begin=Partial(begin),
        asks=Partial(asks),
        local_step=Partial(adaptive_step, adapt) if adapt else Partial(local_step),
        upload=Partial(upload),
        commit=Partial(commit),
        personal=Partial(personal),
    )
