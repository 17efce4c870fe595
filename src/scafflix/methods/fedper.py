"""FedPer: Arivazhagan, Aggarwal, Singh and Choudhary, "Federated Learning with Personalization
Layers" (2019), on the functions f~_i.

FedAvg over some of a model's arrays; the others, such as the last layer, stay at home: each client
trains its own together with the shared ones, and never sends them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from jax.tree_util import Partial

from scafflix.methods.fedavg import fedavg
from scafflix.methods.method import Client, Method, Number, Point, Sent, Server
from scafflix.methods.own import Parts, Patterns, joined
from scafflix.personalization.mixing import mix
from scafflix.theory import Plan


class State(NamedTuple):
    """The client's own arrays."""

    own: Point


def init_client(parts: Parts, client: Client, x0: Point, h0: Point) -> State:
    return State(parts.owned(x0))


def broadcast(parts: Parts, server: Server) -> Sent:
    """The shared arrays."""
    return Sent(parts.shared(server.x))


def begin(client: Client, state: State, sent: Sent) -> Point:
    """The shared arrays, and the client's own where they were."""
    return joined(state.own, sent.x)


def upload(
    parts: Parts, client: Client, state: State, sent: Sent, x: Point
) -> tuple[Point, Number]:
    return parts.shared(x), 1.0


def combine(server: Server, mean: Point, share: Number) -> Server:
    """The mean of the shared arrays; the others are those of the start, for nobody to see."""
    return Server(joined(mean, server.x))


def commit(
    parts: Parts, client: Client, state: State, sent: Sent, x: Point, after: Sent, steps: Number
) -> State:
    return State(parts.owned(x))


def personal(client: Client, state: State, x: Point) -> Point:
    """The shared arrays and the client's own."""
    return mix(client.alpha, joined(state.own, x), client.x_star)


def keeping(method: Method, parts: Parts) -> Method:
    """The method with these arrays at home."""
    return replace(
        method,
        init_client=Partial(init_client, parts),
        broadcast=Partial(broadcast, parts),
        begin=Partial(begin),
        upload=Partial(upload, parts),
        combine=Partial(combine),
        commit=Partial(commit, parts),
        personal=Partial(personal),
    )


def fit(patterns: Patterns, method: Method, names: Sequence[str]) -> Method:
    return keeping(*patterns.fit(method, names))


def fedper(
    plan: Plan, stepsize: float | None = None, p: float | None = None, own: str | None = None
) -> Method:
    """FedPer, with the arrays at home whose names match `own`, such as 'output/*'; several patterns
    are separated by blanks. By default it is the last layer of a network of this package.
    """
    base, patterns = fedavg(plan, stepsize, p), Patterns(own)
    made = replace(
        base,
        name="fedper",
        settings={**base.settings, "own": own},
        fit=Partial(fit, patterns),
    )
    return keeping(made, Parts())
