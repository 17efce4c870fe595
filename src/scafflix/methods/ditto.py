"""Ditto: Li, Hu, Beirami and Smith, "Ditto: Fair and Robust Federated Learning Through
Personalization" (2021), on the functions f~_i.

FedAvg finds x, and beside it every client has a model v_i of its own, which x pulls:
v_i minimizes f~_i(v) + (lambda/2) ||v - x||^2 and is what the client takes home.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from jax.tree_util import Partial

from scafflix.core.arguments import real_number
from scafflix.methods import fedavg as averaging
from scafflix.methods.method import Client, Method, Number, Point, Points, Sent
from scafflix.personalization.mixing import mix
from scafflix.theory import Plan


class State(NamedTuple):
    """The client's own model."""

    v: Point


class Local(NamedTuple):
    """The client's copy of the model of all, and its own."""

    x: Point
    v: Point


def init_client(client: Client, x0: Point, h0: Point) -> State:
    return State(x0)


def begin(client: Client, state: State, sent: Sent) -> Local:
    """x_i = x, and v_i where it was."""
    return Local(sent.x, state.v)


def asks(client: Client, state: State, sent: Sent, local: Local) -> tuple[Point, Point]:
    """Two gradients on one sample."""
    return mix(client.alpha, local.x, client.x_star), mix(client.alpha, local.v, client.x_star)


def pulled(pull: Number, client: Client, v: Point, g: Point, x: Point) -> Point:
    """v - eta (grad f~_i(v) + lambda (v - x)), eta = gamma / (1 + gamma lambda): lambda adds to
    the smoothness, and gamma = 1/L becomes eta = 1/(L + lambda)."""
    eta = client.step / (1 + client.step * pull)
    return v - eta * (client.alpha * g + pull * (v - x))


def local_step(
    pull: Number, client: Client, state: State, sent: Sent, local: Local, g: Points
) -> Local:
    """A step of FedAvg, and one of v_i, which the x of this round pulls."""
    at_x, at_v = g
    x = averaging.local_step(client, state, sent, local.x, at_x)
    return Local(x, pulled(pull, client, local.v, at_v, sent.x))


def upload(client: Client, state: State, sent: Sent, local: Local) -> tuple[Point, Number]:
    return local.x, 1.0


def commit(
    client: Client, state: State, sent: Sent, local: Local, after: Sent, steps: Number
) -> State:
    return State(local.v)


def personal(client: Client, state: State, x: Point) -> Point:
    return mix(client.alpha, state.v, client.x_star)


def ditto(
    plan: Plan, stepsize: float | None = None, p: float | None = None, pull: float = 0.1
) -> Method:
    """Ditto with lambda = `pull`; with 0, clients train alone beside FedAvg."""
    base = averaging.fedavg(plan, stepsize, p)
    pull = real_number("pull", pull)
    return replace(
        base,
        name="ditto",
        settings={**base.settings, "pull": pull},
        init_client=Partial(init_client),
        begin=Partial(begin),
        asks=Partial(asks),
        local_step=Partial(local_step, pull),
        upload=Partial(upload),
        commit=Partial(commit),
        personal=Partial(personal),
    )
