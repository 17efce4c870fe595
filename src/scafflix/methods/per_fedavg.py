"""Per-FedAvg: Fallah, Mokhtari and Ozdaglar, "Personalized Federated Learning with Theoretical
Guarantees: A Model-Agnostic Meta-Learning Approach" (2020), Algorithm 1 with first-order gradients,
on the functions f~_i.

x is to be a good start: client i takes home x - a grad f~_i(x), one step of its own from it, and x
makes f~_i small there. The gradient of this has a Hessian in it, which the first order leaves out.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from jax.tree_util import Partial

from scafflix.core.arguments import real_number
from scafflix.methods.fedavg import fedavg
from scafflix.methods.finetuning import tune
from scafflix.methods.method import Client, Method, Number, Point, Sent, State, geometric
from scafflix.personalization.mixing import mix
from scafflix.theory import Plan


class Local(NamedTuple):
    """The client's copy of the model, and where it asks for a gradient next."""

    x: Point
    y: Point
    outer: Number  # 1 if y is a step ahead of x, 0 if it is x


def begin(client: Client, state: State, sent: Sent) -> Local:
    return Local(sent.x, sent.x, 0 * client.gamma)


def asks(client: Client, state: State, sent: Sent, local: Local) -> Point:
    return mix(client.alpha, local.y, client.x_star)


def local_step(
    a: Number, client: Client, state: State, sent: Sent, local: Local, g: Point
) -> Local:
    """By turns y_i = x_i - a grad f~_i(x_i) and x_i = x_i - b grad f~_i(y_i), each with a batch of
    its own."""
    x = local.x - (local.outer * client.step * client.alpha) * g
    y = x - ((1 - local.outer) * a * client.alpha) * g
    return Local(x, y, 1 - local.outer)


def upload(client: Client, state: State, sent: Sent, local: Local) -> tuple[Point, Number]:
    return local.x, 1.0


def pairs(p: Number, rounds: Number, uniform: Number) -> Number:
    """Two gradient steps for each of a geometric number of steps of x_i."""
    return 2 * geometric(p, rounds, uniform)


def per_fedavg(
    plan: Plan, stepsize: float | None = None, p: float | None = None, a: float | None = None
) -> Method:
    """Per-FedAvg with the paper's alpha = `a`, and its beta the stepsize of FedAvg.

    With a = 0 it is FedAvg, at two gradients a step. By default a is half of that stepsize: with
    all of 1/L, y_i does not depend on x_i in the direction of largest curvature, and x_i gets
    nowhere there. Of a round, 1/p is the expected number of steps of x_i.
    """
    base = fedavg(plan, stepsize, p)
    usual = float((base.gamma / plan.alpha**2)[0]) / 2
    a = real_number("a", usual if a is None else a)
    return replace(
        base,
        name="per_fedavg",
        settings={**base.settings, "a": a},
        p=base.p / 2,
        begin=Partial(begin),
        asks=Partial(asks),
        local_step=Partial(local_step, a),
        upload=Partial(upload),
        local_steps=Partial(pairs, base.p),
        tune=Partial(tune, a),
        tuning_steps=1,
    )
