"""Any method with the mean over its last rounds as its model.

With minibatches, sampled clients or the noise of privacy, x goes on moving around the place that it
tends to, and the last x is one of many. Clients go on from x as before; the model that is looked at
and taken home is a mean of the server's,

    m_r = m_(r-1) + (x_r - m_(r-1)) / (1 + a (r - 1)),

in which round s weighs about (s/r)^(1/a - 1): most of the weight lies on the last share `a` of the
rounds (`average`), however many they are, and the start has none. This is the polynomial-decay
averaging of Shamir and Zhang (2013), with eta = 1/a - 1. It costs no message and no privacy.

By convexity E ||m_r - x*||^2 is at most the same mean of E ||x_s - x*||^2, so that m tends to
wherever x tends to. What is lost is a linear rate: the first rounds leave a part that falls as
r^(-1/a).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

from jax.tree_util import Partial

from scafflix.core.arguments import instance, real_number
from scafflix.methods.method import Message, Method, Number, Point, State
from scafflix.theory import NO_RATE

Inner = Callable[..., Any]  # a function of the method itself


class Server(NamedTuple):
    """The mean over rounds, the method's own state, and the number of rounds."""

    x: Point
    own: State
    rounds: Number


def init_server(inner: Inner, x0: Point) -> Server:
    return Server(x0, inner(x0), 0.0)


def broadcast(inner: Inner, server: Server) -> Any:
    return inner(server.own)


def server_steps(inner: Inner, server: Server, steps: Number) -> Server:
    return server._replace(own=inner(server.own, steps))


def combine(inner: Inner, average: Number, server: Server, mean: Message, share: Number) -> Server:
    """m = m + (x - m) / (1 + a (r - 1))."""
    own = inner(server.own, mean, share)
    weight = 1 / (1 + average * server.rounds)
    return Server(server.x + weight * (own.x - server.x), own, server.rounds + 1)


def averaged(method: Method, average: float) -> Method:
    """The method with a mean over rounds as its model, about the last `average` of them (0.1: the
    last tenth); with 0 it is the method itself."""
    instance("method", method, Method, "a method, such as sx.scafflix(plan)")
    average = real_number("average", average, below=1.0)
    if average == 0:
        return method
    return replace(
        method,
        rate=NO_RATE,  # it is of x, not of the mean
        init_server=Partial(init_server, method.init_server),
        broadcast=Partial(broadcast, method.broadcast),
        server_steps=Partial(server_steps, method.server_steps),
        combine=Partial(combine, method.combine, average),
    )


def share_of(method: Method) -> float:
    """The share of the rounds whose mean is the model; 0 where it is the last model."""
    made = method.combine
    if not (isinstance(made, Partial) and made.func is combine):
        return 0.0
    _, average = made.args
    return float(average)
