"""Gradients with a memory, for any method: the method keeps it beside its own state.

What the method itself iterates on and remembers is as before, so that this is no other method.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

from jax.tree_util import Partial

from scafflix.gradients import Query, Reduced, Reference, points_of
from scafflix.methods.method import (
    Client,
    Message,
    Method,
    Number,
    Point,
)

Inner = Callable[..., Any]  # a function of the method itself


class Kept(NamedTuple):
    """A method's state, or what a client iterates on, and what gradients remember beside it."""

    own: Any
    memory: tuple[Reference, ...]  # of each point that the client asks about


def init_client(
    init: Inner, first: Inner, begin: Inner, asks: Inner, client: Client, x0: Point, h0: Point
) -> Kept:
    """Nothing is remembered of the points that the client will ask about."""
    state, sent = init(client, x0, h0), first(x0)
    points, _ = points_of(asks(client, state, sent, begin(client, state, sent)))
    return Kept(state, tuple(map(Reference.nothing, points)))


def first_broadcast(init_server: Inner, broadcast: Inner, x0: Point) -> Any:
    return broadcast(init_server(x0))


def begin(inner: Inner, client: Client, kept: Kept, sent: Any) -> Kept:
    return Kept(inner(client, kept.own, sent), kept.memory)


def asks(
    inner: Inner, gradient: Reduced, client: Client, kept: Kept, sent: Any, local: Kept
) -> Query:
    points = inner(client, kept.own, sent, local.own)
    return Query(points, local.memory, gradient.renewal(client.examples))


def step(inner: Inner, client: Client, kept: Kept, sent: Any, local: Kept, answer: Query) -> Kept:
    return Kept(inner(client, kept.own, sent, local.own, answer.points), answer.memory)


def upload(
    inner: Inner, client: Client, kept: Kept, sent: Any, local: Kept
) -> tuple[Message, Number]:
    sending: tuple[Message, Number] = inner(client, kept.own, sent, local.own)
    return sending


def commit(
    inner: Inner, client: Client, kept: Kept, sent: Any, local: Kept, after: Any, steps: Number
) -> Kept:
    return Kept(inner(client, kept.own, sent, local.own, after, steps), local.memory)


def of_own(inner: Inner, client: Client, kept: Kept, *others: Any) -> Any:
    """A function that looks at the method's own state only."""
    return inner(client, kept.own, *others)


def remembering(method: Method) -> Method:
    """The method with the memory that its gradients need; most need none."""
    gradient = method.gradient
    if not isinstance(gradient, Reduced):
        return method
    first = Partial(first_broadcast, method.init_server, method.broadcast)
    return replace(
        method,
        init_client=Partial(init_client, method.init_client, first, method.begin, method.asks),
        begin=Partial(begin, method.begin),
        asks=Partial(asks, method.asks, gradient),
        local_step=Partial(step, method.local_step),
        stop=method.stop and Partial(step, method.stop),
        upload=Partial(upload, method.upload),
        commit=Partial(commit, method.commit),
        personal=method.personal if method.mixes else Partial(of_own, method.personal),
        tune=method.tune and Partial(of_own, method.tune),
        controls=Partial(of_own, method.controls),
    )
