"""FedRep: Collins, Hassani, Mokhtari and Shakkottai, "Exploiting Shared Representations for
Personalized Federated Learning" (2021), Algorithm 1, on the functions f~_i.

Some arrays, the head, stay at home as in FedPer; a client first trains its head for the shared
representation as it came, and then the representation for this head.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from jax.tree_util import Partial

from scafflix.core.arguments import whole_number
from scafflix.methods.fedper import State, fedper, keeping
from scafflix.methods.method import Client, Method, Number, Point, Sent, geometric
from scafflix.methods.own import Parts, Patterns, joined
from scafflix.personalization.mixing import mix
from scafflix.theory import Plan


class Local(NamedTuple):
    """The client's head and its copy of the representation."""

    head: Point
    shared: Point
    made: Number  # steps in this round


def begin(client: Client, state: State, sent: Sent) -> Local:
    return Local(state.own, sent.x, 0 * client.gamma)


def asks(client: Client, state: State, sent: Sent, local: Local) -> Point:
    return mix(client.alpha, joined(local.head, local.shared), client.x_star)


def local_step(
    parts: Parts,
    head_steps: Number,
    client: Client,
    state: State,
    sent: Sent,
    local: Local,
    g: Point,
) -> Local:
    """In the first `head_steps` of a round the head, then the representation, each by a step of
    FedAvg with the other as it is."""
    first, step = local.made < head_steps, client.step * client.alpha
    return Local(
        moved(local.head, first * step, parts.owned(g)),
        moved(local.shared, (1 - first) * step, parts.shared(g)),
        local.made + 1,
    )


def moved(part: Point, step: Number, g: Point) -> Point:
    """x - s g, of a part that may have no arrays."""
    return part if part is None else part - step * g


def upload(client: Client, state: State, sent: Sent, local: Local) -> tuple[Point, Number]:
    return local.shared, 1.0


def commit(
    client: Client, state: State, sent: Sent, local: Local, after: Sent, steps: Number
) -> State:
    return State(local.head)


def after_head(p: Number, head_steps: int, rounds: Number, uniform: Number) -> Number:
    """The steps of the head, and a geometric number of those of the representation."""
    return head_steps + geometric(p, rounds, uniform)


def with_head(method: Method, parts: Parts, head_steps: int) -> Method:
    """The method with these arrays for the head."""
    return replace(
        keeping(method, parts),
        begin=Partial(begin),
        asks=Partial(asks),
        local_step=Partial(local_step, parts, head_steps),
        upload=Partial(upload),
        commit=Partial(commit),
    )


def fit(patterns: Patterns, head_steps: int, method: Method, names: Sequence[str]) -> Method:
    return with_head(*patterns.fit(method, names), head_steps)


def fedrep(
    plan: Plan,
    stepsize: float | None = None,
    p: float | None = None,
    own: str | None = None,
    head_steps: int = 10,
) -> Method:
    """FedRep, with the head the arrays whose names match `own`, by default the last layer; with
    `head_steps` 0, every client keeps the head of the start.

    1/p is the expected number of steps of the representation in a round. The paper trains heads
    for 10 passes over the data in its experiments; here it is 10 steps.
    """
    base = fedper(plan, stepsize, p, own)
    head_steps = whole_number("head_steps", head_steps, least=0)
    probability = base.settings["p"]
    made = replace(
        base,
        name="fedrep",
        settings={**base.settings, "head_steps": head_steps},
        p=1 / (head_steps + 1 / probability),
        local_steps=Partial(after_head, probability, head_steps),
        fit=Partial(fit, Patterns(own), head_steps),
    )
    return with_head(made, Parts(), head_steps)
