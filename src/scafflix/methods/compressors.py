"""Unbiased compressors: what arrives of a message x is C(x) with E C(x) = x and
E ||C(x) - x||^2 <= omega ||x||^2.

A message is a tree of arrays, and d numbers are all of its numbers together. Each compressor says
its omega and the exact bits of a message. It takes a random key of JAX, and JAX arrays inside a
compiled program as well as NumPy arrays, which it gives back as such.

What travels between machines is what `encode` makes, in NumPy, and `decode` makes C(x) of it, bit
for bit. Where a message mixes types, numbers travel as the widest.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from scafflix.core.arguments import instance, real_number, shown, whole_number
from scafflix.core.durable import Arrays
from scafflix.core.errors import ScafflixError
from scafflix.methods.draws import Draws
from scafflix.methods.flat import each, in_numpy, library, numbers_of, row_of, shaped, widest
from scafflix.methods.method import Message, Turn
from scafflix.methods.packing import packed, packed_bytes, unpacked
from scafflix.methods.sieve import Sieve


@dataclass(frozen=True)
class Identity:
    """Every number as it is: omega = 0."""

    def omega(self, d: int | None = None) -> float:
        """For messages of d numbers; None: of any number."""
        return 0.0

    def compress(self, key: Any, message: Message) -> Message:
        """C(x)."""
        return message

    def apply(self, turn: Turn, message: Message) -> Message:
        """C(x), by what this client alone draws in this round."""
        return self.compress(turn.own_key, message)

    def bits(self, message: Message, cohort: int = 1) -> int:
        """All of its numbers."""
        return sum(8 * leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(message))

    def encode(self, turn: Turn, message: Message) -> Arrays:
        """The arrays that travel, of as many bits."""
        return tuple(map(np.asarray, jax.tree.leaves(message)))

    def decode(self, turn: Turn, arrays: Arrays, template: Message) -> Message:
        """What `apply` gives of the message that was encoded."""
        return jax.tree.unflatten(jax.tree.structure(template), arrays)


@dataclass(frozen=True)
class RandK(Identity):
    """k numbers at random, times d/k, and 0 for the others: omega = d/k - 1.

    k is a number, or, below 1, a share of d, rounded up. It takes the bits of k numbers; both sides
    draw their places. They are those j for which (a j + b) mod d < k, with a random b and a random
    a that has no divisor in common with d: not every k numbers can come together, but each comes
    with probability k/d, which is all that omega depends on.
    """

    k: float

    def __post_init__(self) -> None:
        k = real_number("k", self.k, above=True)
        if k > 1 and not k.is_integer():
            raise ScafflixError(f"k is {k:g}; give a whole number, or a share below 1.")

    def chosen(self, d: int) -> int:
        """k as a number.

        >>> RandK(0.25).chosen(10), RandK(4).chosen(10)
        (3, 4)
        """
        if self.k > d:
            raise ScafflixError(f"k is {self.k:g}; it must be at most {d}, all of a message.")
        # 0.1 of 30 is 3, although 0.1 is a little more than a tenth
        return int(self.k) if self.k >= 1 else max(1, math.ceil(self.k * d - 1e-9))

    def omega(self, d: int | None = None) -> float:
        if d is not None:
            return d / self.chosen(d) - 1
        if self.k >= 1:
            raise _unknown_omega(f"rand_k:{self.k:g}")
        return 1 / self.k - 1

    def sieve(self, key: Any, message: Message) -> Sieve:
        """Which numbers are sent."""
        d, xp = numbers_of(message), library(message)
        k = self.chosen(d)
        drawn = xp.asarray(jax.random.randint(key, (2,), 0, d, np.int32)).astype(np.uint32)
        following = (drawn[0] + xp.arange(COPRIME_WITHIN, dtype=np.uint32)) % np.uint32(d)
        a = following[xp.argmax(xp.gcd(following, np.uint32(d)) == 1)]
        return Sieve(a, drawn[1], d, k)

    def compress(self, key: Any, message: Message) -> Message:
        sieve = self.sieve(key, message)
        return sieve.through(message, sieve.m / sieve.t)

    def bits(self, message: Message, cohort: int = 1) -> int:
        return 8 * self.chosen(numbers_of(message)) * widest(message).itemsize

    def encode(self, turn: Turn, message: Message) -> Arrays:
        message = in_numpy(message)
        sieve = self.sieve(turn.own_key, message)
        return (sieve.picked(message, sieve.t),)

    def decode(self, turn: Turn, arrays: Arrays, template: Message) -> Message:
        sieve = self.sieve(turn.own_key, in_numpy(template))
        return sieve.placed(arrays[0], template, sieve.m / sieve.t)


COPRIME_WITHIN = 64
"""Of so many whole numbers in a row one has no divisor in common with d, for d below 2^31: the
longest row without one is shorter than 40."""


@dataclass(frozen=True)
class Natural(Identity):
    """Up or down to a power of two, by chance: omega = 1/8 (Horvath et al., 2019).

    Sign and exponent remain: 9 bits of a float32, 12 of a float64. A number below the smallest
    normal one becomes that or 0.
    """

    def omega(self, d: int | None = None) -> float:
        return 1 / 8

    def compress(self, key: Any, message: Message) -> Message:
        xp, draws = library(message), Draws(key, message)

        def rounded(x: Any, first: int) -> Any:
            """A random fraction, added to that of x, carries into the exponent as often as it
            should; what is not finite becomes infinite."""
            places = np.finfo(x.dtype).nmant
            fraction = draws.bits(x, first, places)
            fraction = xp.where(xp.isfinite(x), fraction, xp.zeros_like(fraction))
            ones = fraction.dtype.type(2**places - 1)
            return _read_as(x.dtype, (_pattern(x) + fraction) & ~ones)

        return each(rounded, message)

    def bits(self, message: Message, cohort: int = 1) -> int:
        return 8 * packed_bytes(numbers_of(message), _width(message))

    def encode(self, turn: Turn, message: Message) -> Arrays:
        row = row_of(self.apply(turn, in_numpy(message)))
        return (packed(_pattern(row) >> np.finfo(row.dtype).nmant, _width(message)),)

    def decode(self, turn: Turn, arrays: Arrays, template: Message) -> Message:
        kind = widest(template)
        codes = unpacked(arrays[0], _width(template), numbers_of(template))
        row = codes.astype(f"uint{8 * kind.itemsize}") << np.finfo(kind).nmant
        return shaped(_read_as(kind, row), template)


def _width(message: Message) -> int:
    """Bits of a sign and an exponent."""
    return 1 + int(np.finfo(widest(message)).nexp)


def _pattern(x: Any) -> Any:
    """The bits of numbers, as integers."""
    return _read_as(np.dtype(f"uint{8 * x.dtype.itemsize}"), x)


def _read_as(kind: Any, x: Any) -> Any:
    """The same bits as another type."""
    if isinstance(x, jax.Array):
        return jax.lax.bitcast_convert_type(x, kind)
    return np.asarray(x).view(kind)


@dataclass(frozen=True)
class Dithering(Identity):
    """|x_j| / ||x|| up or down to a multiple of 1/levels, by chance (QSGD: Alistarh et al., 2017):
    omega = min(d / levels^2, sqrt(d) / levels).

    It takes the norm, of the widest type, and for each number a sign and one of 0, ..., levels, in
    as many bits as tell these apart.
    """

    levels: int

    def __post_init__(self) -> None:
        whole_number("levels", self.levels, least=1, most=2**20)

    def omega(self, d: int | None = None) -> float:
        if d is None:
            raise _unknown_omega(f"dithering:{self.levels}")
        return min(d / self.levels**2, math.sqrt(d) / self.levels)

    @property
    def width(self) -> int:
        """Bits of a sign and a level."""
        return 1 + self.levels.bit_length()

    def quantized(self, key: Any, message: Message) -> tuple[Any, Message]:
        """||x||, and for each number its level, with its sign."""
        xp, draws = library(message), Draws(key, message)
        norm = xp.sqrt(sum(xp.sum(xp.square(leaf)) for leaf in jax.tree.leaves(message)))
        scale = self.levels / xp.where(norm > 0, norm, xp.ones_like(norm))

        def level(x: Any, first: int) -> Any:
            """A random fraction is added, and the sum rounded down."""
            bits = np.finfo(x.dtype).nmant + 1
            uniform = draws.bits(x, first, bits).astype(x.dtype) * x.dtype.type(2.0**-bits)
            return xp.clip(xp.floor(x * scale + uniform), -self.levels, self.levels)

        return norm, each(level, message)

    def worth(self, norm: Any, levels: Message, template: Message) -> Message:
        """The numbers at these levels."""
        unit = norm / self.levels
        return jax.tree.map(lambda level, x: (level * unit).astype(x.dtype), levels, template)

    def compress(self, key: Any, message: Message) -> Message:
        return self.worth(*self.quantized(key, message), message)

    def bits(self, message: Message, cohort: int = 1) -> int:
        size = packed_bytes(numbers_of(message), self.width)
        return 8 * (widest(message).itemsize + size)

    def encode(self, turn: Turn, message: Message) -> Arrays:
        norm, levels = self.quantized(turn.own_key, in_numpy(message))
        with np.errstate(invalid="ignore"):  # a norm that is not finite says it all
            codes = row_of(levels).astype(np.int32) + self.levels
        return np.array([norm], widest(message)), packed(codes, self.width)

    def decode(self, turn: Turn, arrays: Arrays, template: Message) -> Message:
        (norm,), content = arrays
        codes = unpacked(content, self.width, numbers_of(template))
        largest = codes.max(initial=0)
        if norm < 0 or largest > 2 * self.levels:
            raise ScafflixError(
                f"the norm is {norm:g} and the largest code {largest}; they must be at least 0 and "
                f"at most {2 * self.levels}."
            )
        row = codes.astype(widest(template)) - self.levels
        return self.worth(norm, shaped(row, template), template)


for kind in (Identity, RandK, Natural, Dithering):
    jax.tree_util.register_static(kind)  # they decide how long messages are


def compressor_of(text: str) -> Identity:
    """A compressor by its name: identity, natural, rand_k:K or dithering:LEVELS.

    >>> compressor_of("rand_k:0.1"), compressor_of("dithering:8")
    (RandK(k=0.1), Dithering(levels=8))
    """
    instance("compressor", text, str, "text, such as natural or rand_k:0.1")
    name, _, number = text.partition(":")
    plain: dict[str, Callable[[], Identity]] = {"identity": Identity, "natural": Natural}
    if name in plain and not number:
        return plain[name]()
    try:
        if name == "rand_k":
            return RandK(float(number))
        if name == "dithering":
            return Dithering(int(number))
    except ValueError:
        pass
    raise ScafflixError(
        f"compressor is {shown(text)}; it must be identity, natural, rand_k:K or dithering:LEVELS."
    )


def _unknown_omega(name: str) -> ScafflixError:
    return ScafflixError(f"The omega of {name} depends on the size of the model; give omega.")
