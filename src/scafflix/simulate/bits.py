"""What a communication costs, counted on a method's own messages."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from scafflix.core.precision import in_float64
from scafflix.core.vector import Vector
from scafflix.methods.method import Client, Method, Turn
from scafflix.methods.transport import Transport


@in_float64
def message_bits(method: Method, template: Any, cohort: int) -> tuple[int, int]:
    """Bits that one client sends and receives in one communication of a cohort of such a size,
    counted on the messages themselves for a model of the template's shapes and types; weights and
    numbers of local steps, a few scalars, are left out."""

    def exchange(x: Any) -> tuple[Any, Any]:
        point = Vector(x)
        turn = Turn(jax.random.key(0), 0, cohort)
        client = Client(1.0, 1.0, point, turn=turn)
        state = method.init_client(client, point, point)
        sent = method.broadcast(method.init_server(point))
        message, _ = method.upload(client, state, sent, method.begin(client, state, sent))
        return message, sent

    message, sent = jax.eval_shape(exchange, template)

    def bits(tree: Any) -> int:
        return sum(8 * leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(tree))

    compressor = method.compressor
    up = bits(message) if compressor is None else compressor.bits(message, cohort)
    down = compressor.bits_of(sent) if isinstance(compressor, Transport) else bits(sent)
    return up, down


def remembers(method: Method) -> bool:
    """Whether control variates are in what clients begin with."""
    zero, client = np.zeros(1), Client(1.0, 1.0)
    without, given = (method.init_client(client, zero, h) for h in (zero, zero + 1))
    pairs = zip(jax.tree.leaves(without), jax.tree.leaves(given), strict=True)
    return not all(np.array_equal(*pair) for pair in pairs)


def warm_messages(method: Method, h0: object) -> int:
    """Communications before the first round: one to project warm control variates, in a method
    that remembers any."""
    return int(isinstance(h0, str) and h0 == "warm" and remembers(method))
