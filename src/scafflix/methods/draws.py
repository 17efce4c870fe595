"""Random bits for every number of a message, from a key of JAX and the number's place.

They are cheap (two multiplications a number, in one pass with what is done with them), and the same
on every machine. For a random key the bits of each number are uniform; those of different numbers
are uncorrelated as far as a good mixing function makes them so.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import numpy as np

from scafflix.methods.flat import library
from scafflix.methods.method import Message


class Mixing(NamedTuple):
    """Constants of x = (x ^ (x >> shift)) factor, done twice, whose upper bits are then taken:
    those of lowbias32 (C. Wellons) for 32 bits, and of splitmix64 (S. Vigna) for 64."""

    stride: int  # odd, near the golden ratio: neighbours begin far apart
    shifts: tuple[int, int]
    factors: tuple[int, int]


MIXING = {
    32: Mixing(0x9E3779B9, (16, 15), (0x7FEB352D, 0x846CA68B)),
    64: Mixing(0x9E3779B97F4A7C15, (30, 27), (0xBF58476D1CE4E5B9, 0x94D049BB133111EB)),
}


class Draws:
    """What is drawn from one key."""

    def __init__(self, key: Any, message: Message) -> None:
        """For a message of NumPy arrays, NumPy arrays."""
        self.xp = library(message)
        self.words = self.xp.asarray(jax.random.bits(key, (3,), np.uint32))

    def bits(self, leaf: Any, first: int, count: int) -> Any:
        """`count` random bits for each number of an array, as integers as wide as its numbers."""
        wide = 64 if leaf.dtype.itemsize == 8 else 32
        kind, mixing = np.dtype(f"uint{wide}").type, MIXING[wide]
        start, other, more = (word.astype(kind) for word in self.words)
        if wide == 64:
            start = start | (more << kind(32))
        (shift, then), (factor, last) = map(partial(map, kind), (mixing.shifts, mixing.factors))
        x = self.xp.arange(first, first + leaf.size, dtype=kind) * kind(mixing.stride) + start
        x = ((x ^ (x >> shift)) * factor) ^ other
        x = (x ^ (x >> then)) * last
        x = (x >> kind(wide - count)).reshape(leaf.shape)
        return x.astype(f"uint{8 * leaf.dtype.itemsize}")
