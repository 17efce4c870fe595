"""Some of the numbers of a message, evenly spread: number j passes if (a j + b) mod m < t.

If b is drawn evenly from 0, ..., m - 1, each number passes with probability t/m. If a and m have no
common divisor, t of any m numbers in a row pass.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from scafflix.methods.flat import each, library, row_of, shaped, widest
from scafflix.methods.method import Message, Number


class Sieve(NamedTuple):
    """a and b are below m, which is at most 2^31."""

    a: Number
    b: Number
    m: int
    t: int

    def through(self, message: Message, factor: float = 1.0) -> Message:
        """The numbers that pass, times a factor, and 0 for the others."""
        xp = library(message)

        def kept(leaf: Any, first: int) -> Any:
            passes = self._passes(xp, leaf.shape, first)
            return xp.where(passes, leaf * factor, xp.zeros_like(leaf))

        return each(kept, message)

    def picked(self, message: Message, room: int) -> NDArray[Any]:
        """The numbers of NumPy arrays that pass, and zeros behind them to fill the room."""
        found = row_of(message)[self._row(message)]
        return np.concatenate([found, np.zeros(room - len(found), found.dtype)])

    def placed(self, picked: NDArray[Any], template: Message, factor: float = 1.0) -> Message:
        """What `through` gives of the message from which they were picked."""
        passes = self._row(template)
        row = np.zeros(len(passes), widest(template))
        row[passes] = picked[: np.count_nonzero(passes)]
        return jax.tree.map(lambda leaf: leaf * factor, shaped(row, template))

    def _row(self, template: Message) -> NDArray[np.bool_]:
        passes = each(lambda leaf, first: self._passes(np, leaf.shape, first).ravel(), template)
        return np.concatenate(jax.tree.leaves(passes))

    def _passes(self, xp: Any, shape: tuple[int, ...], first: int) -> Any:
        """Which numbers of an array pass; its own first number is number `first`.

        As number j = first + i l + k, in row i and column k, has a j + b = (a(first + i l) + b)
        + a k, there is a sum for each number, and a product only for each row and each column.
        """
        rows, columns = math.prod(shape[:-1]), math.prod(shape[-1:])
        m = np.uint32(self.m)
        row = _products(self.a, first + columns * np.arange(rows), self.m)
        row = _wrapped(xp, row + xp.asarray(self.b).astype(np.uint32), m)
        column = _products(self.a, np.arange(columns), self.m)
        place = _wrapped(xp, row[:, None] + column, m)
        return (place < np.uint32(self.t)).reshape(shape)


def _wrapped(xp: Any, total: Any, m: np.uint32) -> Any:
    """Modulo m, of what is below 2 m."""
    return xp.where(total >= m, total - m, total)


def _products(a: Number, numbers: NDArray[np.int64], m: int) -> Any:
    """a j mod m, as uint32; a is a number, or random in a program that may have no int64."""
    if not isinstance(a, jax.Array):
        return (int(a) * numbers % m).astype(np.uint32)
    j, last = jnp.asarray(numbers.astype(np.uint32)), int(numbers.max(initial=0)).bit_length() - 1

    def double_and_add(done: Any, total: Any) -> Any:
        total = _wrapped(jnp, total + total, np.uint32(m))
        bit = (j >> (last - done).astype(np.uint32)) & np.uint32(1)
        return _wrapped(jnp, total + bit * a, np.uint32(m))

    # as a loop it is done once, and not again for each number by the program that it is a part of
    return jax.lax.fori_loop(np.int32(0), np.int32(last + 1), double_and_add, jnp.zeros_like(j))
