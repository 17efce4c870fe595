"""What a communication costs, counted on a method's own messages."""

from __future__ import annotations

from typing import Any

import jax

from scafflix.core.precision import in_float64
from scafflix.core.vector import Vector
from scafflix.methods.method import Client, Method


@in_float64
def message_bits(method: Method, template: Any) -> tuple[int, int]:
    """Bits that one client sends and receives in one communication, counted on the messages
    themselves for a model of the template's shapes and types; weights and numbers of local steps,
    a few scalars, are left out."""

    def exchange(x: Any) -> tuple[Any, Any]:
        point = Vector(x)
        client = Client(1.0, 1.0, point)
        state = method.init_client(client, point, point)
        sent = method.broadcast(method.init_server(point))
        message, _ = method.upload(client, state, sent, method.begin(client, state, sent))
        return message, sent

    message, sent = jax.eval_shape(exchange, template)

    def bits(tree: Any) -> int:
        return sum(8 * leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(tree))

    up = bits(message) if method.compressor is None else method.compressor.bits(message)
    return up, bits(sent)


def remembers(method: Method) -> bool:
    """Whether clients begin with something that control variates may be in."""
    return bool(jax.tree.leaves(method.init_client(Client(1.0, 1.0), 0.0, 0.0)))


def warm_messages(method: Method, h0: object) -> int:
    """Communications before the first round: one to project warm control variates, in a method
    that remembers any."""
    return int(isinstance(h0, str) and h0 == "warm" and remembers(method))
