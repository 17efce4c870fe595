"""L2GD, loopless local gradient descent: Hanzely and Richtarik, "Federated Learning of a Mixture of
Global and Local Models" (2020), Algorithm 1, on the functions f~_i.

Every client keeps a model x_i of its own; together they minimize
(1/n) sum_i f~_i(x_i) + (lambda/2n) sum_i ||x_i - x||^2, where x is the mean of the x_i.
"""

from __future__ import annotations

from typing import NamedTuple

from jax.tree_util import Partial

from scafflix.core.arguments import real_number
from scafflix.core.errors import ScafflixError
from scafflix.methods.method import Client, Method, Number, Point, Sent, geometric
from scafflix.personalization.mixing import mix
from scafflix.theory import NO_RATE, Plan, check_plan, chosen_probability, chosen_stepsize


class State(NamedTuple):
    """The client's own model."""

    x: Point


class Local(NamedTuple):
    """The client's own model, and where it was a step ago."""

    x: Point
    before: Point


def init_client(client: Client, x0: Point, h0: Point) -> State:
    return State(x0)


def begin(client: Client, state: State, sent: Sent) -> Local:
    """Clients go on from their own models."""
    return Local(state.x, state.x)


def asks(client: Client, state: State, sent: Sent, local: Local) -> Point:
    return mix(client.alpha, local.x, client.x_star)


def local_step(client: Client, state: State, sent: Sent, local: Local, g: Point) -> Local:
    """While the coin shows 0: x_i - (a / (n (1 - p))) grad f~_i(x_i)."""
    return Local(local.x - (client.step * client.alpha) * g, local.x)


def upload(client: Client, state: State, sent: Sent, local: Local) -> tuple[Point, Number]:
    """The coin showed 1 at the K-th flip, so that only K - 1 of the gradient steps count."""
    return local.before, 1.0


def commit(
    odds: Number,
    client: Client,
    state: State,
    sent: Sent,
    local: Local,
    after: Sent,
    steps: Number,
) -> State:
    """When it shows 1: x_i + (a lambda / (n p)) (x - x_i), a part of the way to the mean."""
    return State(local.before + (client.step * odds) * (after.x - local.before))


def personal(client: Client, state: State, x: Point) -> Point:
    return mix(client.alpha, state.x, client.x_star)


def l2gd(
    plan: Plan, stepsize: float | None = None, p: float | None = None, pull: float = 0.1
) -> Method:
    """L2GD with lambda = `pull`; with 0, every client trains alone.

    p is by default the best one by the theory of the paper, lambda / (L + lambda), where the
    constants are known; and the stepsize of a gradient step, gamma = a / (n (1 - p)), the largest
    that the theory allows: a = 1 / (2 max(L / (n (1 - p)), lambda / (n p))). Where they are not,
    both are the plan's.
    """
    check_plan(plan)
    pull = real_number("pull", pull)
    largest = float((plan.gamma / plan.alpha**2).min())  # 1 / L
    best = pull / (1 / largest + pull) if plan.known and pull else plan.p
    p = chosen_probability(p, best)
    if p == 1:
        raise ScafflixError("p is 1, with which l2gd makes no gradient step; give p below 1.")
    odds = pull * (1 - p) / p
    allowed = 0.5 / max(1 / largest, odds) if plan.known else largest
    step = chosen_stepsize(stepsize, allowed)
    return Method(
        name="l2gd",
        settings={"p": p, "pull": pull},
        gamma=step * plan.alpha**2,
        limit=allowed * plan.alpha**2,
        p=p,
        rate=NO_RATE,
        gradient=plan.gradient,
        made_for=plan.made_for,
        init_client=Partial(init_client),
        begin=Partial(begin),
        asks=Partial(asks),
        local_step=Partial(local_step),
        upload=Partial(upload),
        commit=Partial(commit, odds),
        personal=Partial(personal),
        local_steps=Partial(geometric, p),
    )
