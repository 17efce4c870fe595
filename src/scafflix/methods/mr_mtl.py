"""MR-MTL, mean-regularized multi-task learning: Liu, Hu, Wu and Smith, "On Privacy and
Personalization in Cross-Silo Federated Learning" (2022), on the functions f~_i.

Every client keeps a model w_i of its own, and only their mean is common:
minimize (1/n) sum_i f~_i(w_i) + (lambda/2) ||w_i - w||^2 with w = (1/n) sum_i w_i.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from jax.tree_util import Partial

from scafflix.core.arguments import real_number
from scafflix.methods.ditto import pulled
from scafflix.methods.fedavg import fedavg
from scafflix.methods.method import Client, Method, Number, Point, Sent
from scafflix.personalization.mixing import mix
from scafflix.theory import Plan


class State(NamedTuple):
    """The client's own model."""

    w: Point


def init_client(client: Client, x0: Point, h0: Point) -> State:
    return State(x0)


def begin(client: Client, state: State, sent: Sent) -> Point:
    """Clients go on from their own models."""
    return state.w


def local_step(pull: Number, client: Client, state: State, sent: Sent, w: Point, g: Point) -> Point:
    """w_i - eta (grad f~_i(w_i) + lambda (w_i - w)), with the mean of the last round."""
    return pulled(pull, client, w, g, sent.x)


def commit(client: Client, state: State, sent: Sent, w: Point, after: Sent, steps: Number) -> State:
    return State(w)


def personal(client: Client, state: State, x: Point) -> Point:
    return mix(client.alpha, state.w, client.x_star)


def mr_mtl(
    plan: Plan, stepsize: float | None = None, p: float | None = None, pull: float = 0.1
) -> Method:
    """MR-MTL with lambda = `pull`; with 0, every client trains alone."""
    base = fedavg(plan, stepsize, p)
    pull = real_number("pull", pull)
    return replace(
        base,
        name="mr_mtl",
        settings={**base.settings, "pull": pull},
        init_client=Partial(init_client),
        begin=Partial(begin),
        local_step=Partial(local_step, pull),
        commit=Partial(commit),
        personal=Partial(personal),
    )
