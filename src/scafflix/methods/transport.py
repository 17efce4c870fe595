"""Models and messages that travel as float32 or bfloat16, for methods whose clients send where
they arrived.

A client sends how far it went, d_i = q(x_hat_i - x), and goes on as if it had arrived at x + d_i:
that is what the server averages, and what line 13 takes. As clients converge, d_i tends to 0 and
its rounding error with it.

Down goes q(x). The control variates advance by q(x) - (x + d_i), so that sum_i alpha_i h_i moves by
W (q(x) - x), W being the weight of the cohort. The server owes that, and puts it into the next
average: over any number of rounds the sum stays within one rounding of x.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import jax
import ml_dtypes
import numpy as np
from jax.tree_util import Partial

from scafflix.core.arguments import choice
from scafflix.core.durable import Arrays
from scafflix.core.errors import ScafflixError
from scafflix.core.vector import Vector
from scafflix.methods.method import Client, Local, Message, Method, Number, Point, State, Turn
from scafflix.theory import NO_RATE

Inner = Callable[..., Any]  # a function of the method itself
FULL = "full"
TYPES: dict[str, np.dtype[Any]] = {
    "float32": np.dtype(np.float32),
    "bfloat16": np.dtype(ml_dtypes.bfloat16),
}
TRANSPORTS = (FULL, *TYPES)
# a float64 becomes a bfloat16 by way of a float32, in every library
ROUNDINGS = {"float32": ((8, 23),), "bfloat16": ((8, 23), (8, 7))}  # bits of exponent and fraction
SMALL = 2.0**-30  # so that a weight counts for nothing in the norm of a message


class Moved(NamedTuple):
    """What travels up."""

    by: Point  # d_i
    scarcity: Any  # one small number over the weight: from the mean of these, W is known


class Server(NamedTuple):
    """The model as clients know it, and what is left of its rounding."""

    x: Point
    own: State  # the method's own
    owed: Point  # W (x - q(x)), which the next average makes up for


@jax.tree_util.register_static
@dataclass(frozen=True)
class Transport:
    """The type in which numbers travel, both ways; a compressor of what travels up."""

    kind: str

    @property
    def type(self) -> np.dtype[Any]:
        return TYPES[self.kind]

    def rounded(self, tree: Any) -> Any:
        """q, in the types of the tree."""
        return jax.tree.map(self._rounded, tree)

    def _rounded(self, leaf: Any) -> Any:
        if isinstance(leaf, np.ndarray | np.generic):
            with np.errstate(over="ignore"):
                return np.asarray(leaf).astype(np.float32).astype(self.type).astype(leaf.dtype)
        if isinstance(leaf, jax.Array):  # XLA may leave out two conversions, but not this
            for bits in ROUNDINGS[self.kind]:
                leaf = jax.lax.reduce_precision(leaf, *bits)
            return leaf
        import torch

        return leaf.to(torch.float32).to(getattr(torch, self.kind)).to(leaf.dtype)

    def apply(self, turn: Turn, message: Moved) -> Moved:
        return Moved(self.rounded(message.by), Transport("float32").rounded(message.scarcity))

    def bits(self, message: Moved, cohort: int = 1) -> int:
        return self.bits_of(message.by) + 32

    def bits_of(self, tree: Any) -> int:
        """Of a point that travels."""
        return sum(8 * leaf.size * self.type.itemsize for leaf in jax.tree.leaves(tree))

    def encode(self, turn: Turn, message: Moved) -> Arrays:
        one = np.asarray(message.scarcity).astype(np.float32)
        return (*self.narrow(tuple(map(np.asarray, jax.tree.leaves(message.by)))), one)

    def decode(self, turn: Turn, arrays: Arrays, template: Moved) -> Moved:
        *by, scarcity = arrays
        leaves, form = jax.tree.flatten(template.by)
        moved = jax.tree.unflatten(form, self.wide(tuple(by), leaves))
        return Moved(moved, scarcity.astype(template.scarcity.dtype))

    def narrow(self, arrays: Arrays) -> Arrays:
        """As they travel: files of arrays know no bfloat16, so that its bits are integers there."""
        with np.errstate(over="ignore"):
            narrow = tuple(a.astype(np.float32).astype(self.type) for a in arrays)
        return tuple(a.view(np.uint16) if self.kind == "bfloat16" else a for a in narrow)

    def wide(self, arrays: Arrays, like: Any) -> Arrays:
        """As they were, in the types of others; what is of another type stays as it is."""
        travels = np.dtype(np.uint16) if self.kind == "bfloat16" else self.type
        if len(arrays) != len(like):
            return arrays
        return tuple(
            a.view(self.type).astype(b.dtype) if a.dtype == travels else a
            for a, b in zip(arrays, like, strict=True)
        )


def init_server(inner: Inner, transport: Transport, x0: Point) -> Server:
    own = inner(x0)
    return Server(transport.rounded(own.x), own, 0 * x0)


def broadcast(inner: Inner, transport: Transport, server: Server) -> Any:
    """q of all that goes down."""
    return transport.rounded(inner(server.own))


def moved(transport: Transport, sent: Any, local: Local) -> Point:
    """d_i = q(x_hat_i - x)."""
    return transport.rounded(local - sent.x)


def upload(
    inner: Inner, transport: Transport, client: Client, state: State, sent: Any, local: Local
) -> tuple[Moved, Number]:
    by = moved(transport, sent, local)
    _, weight = inner(client, state, sent, local)
    one = jax.tree.leaves(by)[0].reshape(-1)[:1]
    return Moved(by, 0 * one + SMALL / weight), weight


def combine(
    inner: Inner, down: Inner, transport: Transport, server: Server, mean: Moved, share: Number
) -> Server:
    """The average of the x + d_i, and what is owed."""
    total = share / mean.scarcity[0]  # W, in some unit
    x = transport.rounded(down(server.own)).x
    own = inner(server.own, x + mean.by + (1 / total) * server.owed, share)
    exact = down(own).x
    return Server(transport.rounded(own.x), own, total * (exact - transport.rounded(exact)))


def server_steps(inner: Inner, server: Server, steps: Number) -> Server:
    return server._replace(own=inner(server.own, steps))


def commit(
    inner: Inner,
    transport: Transport,
    client: Client,
    state: State,
    sent: Any,
    local: Local,
    after: Any,
    steps: Number,
) -> State:
    """With where the server took the client to be."""
    arrived = sent.x + moved(transport, sent, local)
    return inner(client, state, sent, arrived, after, steps)


def transported(method: Method, kind: str) -> Method:
    """The method with models and messages that travel in another type; `full`: as they are."""
    if choice("transport", kind, TRANSPORTS) == FULL:
        return method
    if not _sends_arrival(method):
        raise ScafflixError(
            f"transport is {kind}, which needs a method whose clients begin at the model and send "
            f"where they arrived, such as scafflix or fedavg; with {method.name} leave it out."
        )
    transport = Transport(kind)
    return replace(
        method,
        init_server=Partial(init_server, method.init_server, transport),
        broadcast=Partial(broadcast, method.broadcast, transport),
        upload=Partial(upload, method.upload, transport),
        server_steps=Partial(server_steps, method.server_steps),
        combine=Partial(combine, method.combine, method.broadcast, transport),
        commit=Partial(commit, method.commit, transport),
        compressor=transport,
        rate=NO_RATE,  # which does not know of rounding
    )


def _sends_arrival(method: Method) -> bool:
    """Whether a client begins at x, and its message is what it iterates on."""
    if method.fit is not None or method.compressor is not None:
        return False
    x = Vector((np.zeros(1),))
    client = Client(0.5, 0.25, x, 3.0, 4.0, Turn(jax.random.key(0), 0, 4))
    state, sent = method.init_client(client, x, x), method.broadcast(method.init_server(x))
    local = method.begin(client, state, sent)
    message: Message = method.upload(client, state, sent, local)[0]
    return local is sent.x and message is local
