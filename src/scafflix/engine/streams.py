"""Random streams: one seed, and a separate stream for each thing that is drawn."""

from __future__ import annotations

from enum import IntEnum

import jax
from jax import Array


class Stream(IntEnum):
    """What a stream is for; the numbers are part of what a seed means."""

    COIN = 1
    GRADIENT = 2


def stream(seed: int, purpose: Stream) -> Array:
    """The key of one stream of a seed."""
    return jax.random.fold_in(jax.random.key(seed), int(purpose))
