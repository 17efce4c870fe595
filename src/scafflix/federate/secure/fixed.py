"""Numbers as words of 64 bits, whose sum modulo a power of two is exact.

Numbers of 32 bits become one word each, with 36 bits after the point; numbers of 64 bits become
two, with 76. So one step is 1.5e-11 or 1.3e-23, which is less than the floating-point rounding of a
model whose numbers are near 1: whoever goes on with the message as it was, not as it arrived,
changes sums of control variates no more than floating-point numbers do anyway.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from scafflix.core.errors import ScafflixError
from scafflix.core.types import Floats

Words = NDArray[np.uint64]  # [limbs, numbers], the lowest limb first

BITS = 64


class FixedPoint(NamedTuple):
    """How numbers are written: as integers modulo 2^(64 limbs), in two's complement."""

    limbs: int
    fraction: int  # bits after the point

    def step(self) -> float:
        """The distance of two neighbours; a number is off by at most half of it."""
        return 2.0**-self.fraction

    def bound(self, terms: int) -> float:
        """How large each number of a sum of so many may be. At half the bits' range, no sum wraps.

        >>> f"{SINGLE.bound(4):.3g} {DOUBLE.bound(4):.3g}"
        '1.68e+07 2.81e+14'
        """
        return 2.0 ** (BITS * self.limbs - 2 - self.fraction) / terms

    def encoded(self, numbers: Floats, terms: int) -> Words:
        """Words for numbers that are to be added to those of others, so many in all.

        A number that is too large is refused, without saying which or how large it is.
        """
        if not (np.abs(numbers) < self.bound(terms)).all():  # nor is NaN
            raise ScafflixError(
                "a number of its message is not finite or beyond the range of secure aggregation, "
                f"{self.bound(terms):.3g} for {terms} clients; use smaller stepsizes."
            )
        if self.limbs == 1:
            return np.rint(np.ldexp(numbers, self.fraction)).astype(np.int64).view(np.uint64)[None]
        above = np.ldexp(np.abs(numbers), self.fraction - BITS)
        whole = np.floor(above)
        rest = np.rint(np.ldexp(above - whole, BITS))
        words = np.stack([rest.astype(np.uint64), whole.astype(np.uint64)])
        return np.where(numbers < 0, _negated(words), words)

    def decoded(self, words: Words) -> Floats:
        """The numbers that words stand for."""
        if self.limbs == 1:
            return np.ldexp(words[0].view(np.int64).astype(float), -self.fraction)
        negative = words[1] >= np.uint64(2 ** (BITS - 1))
        low, high = np.where(negative, _negated(words), words).astype(float)
        size = np.ldexp(high, BITS - self.fraction) + np.ldexp(low, -self.fraction)
        return np.where(negative, -size, size)

    def layout(self, numbers: int) -> str:
        """Type and shape of the words of so many numbers, as messages write them."""
        return f"uint64[{self.limbs},{numbers}]"


SINGLE, DOUBLE = FixedPoint(1, 36), FixedPoint(2, 76)


def fixed_point_for(arrays: Sequence[NDArray[Any]]) -> FixedPoint:
    """For messages of such arrays: wide enough for their widest type."""
    return DOUBLE if any(array.dtype.itemsize > 4 for array in arrays) else SINGLE


def add(total: Words, words: Words) -> None:
    """total += words, modulo 2^(64 limbs)."""
    total[0] += words[0]
    if len(total) > 1:
        total[1] += words[1] + (total[0] < words[0])


def subtract(total: Words, words: Words) -> None:
    """total -= words, modulo 2^(64 limbs)."""
    borrowed = total[0] < words[0]
    total[0] -= words[0]
    if len(total) > 1:
        total[1] -= words[1] + borrowed


def _negated(words: Words) -> Words:
    """Two's complement of two limbs."""
    low, high = ~words[0] + np.uint64(1), ~words[1]
    return np.stack([low, high + (low == 0)])
