"""Unbiased compressors: what arrives of a message x is C(x) with E C(x) = x and
E ||C(x) - x||^2 <= omega ||x||^2.

A message is a tree of arrays, and d numbers are all of its numbers together. Each compressor says
its omega and the exact bits of a message. It takes a random key of JAX, and JAX arrays inside a
compiled program as well as NumPy arrays, which it gives back as such.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from scafflix.core.arguments import instance, real_number, shown, whole_number
from scafflix.core.errors import ScafflixError
from scafflix.methods.method import Message, Turn

SEED_BITS = 64
"""Of a key of JAX, from which the receiver draws the places of numbers again."""


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


@dataclass(frozen=True)
class RandK(Identity):
    """k numbers at random, times d/k, and 0 for the others: omega = d/k - 1.

    k is a number, or, below 1, a share of d, rounded up. It takes the bits of k numbers (of the
    widest type, where several are mixed) and of a seed, from which both sides draw the k places.
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

    def compress(self, key: Any, message: Message) -> Message:
        d = numbers_of(message)
        k = self.chosen(d)
        kept = jax.random.permutation(key, d) < k
        return each(lambda xp, x, mine: xp.where(mine, x * (d / k), 0 * x), message, kept)

    def bits(self, message: Message, cohort: int = 1) -> int:
        return self.chosen(numbers_of(message)) * widest(message) + SEED_BITS


@dataclass(frozen=True)
class Natural(Identity):
    """Up or down to a power of two, by chance: omega = 1/8 (Horvath et al., 2019).

    Sign and exponent remain: 9 bits of a float32, 12 of a float64. A number below the smallest
    normal one, whose exponent is that of 0, becomes 0.
    """

    def omega(self, d: int | None = None) -> float:
        return 1 / 8

    def compress(self, key: Any, message: Message) -> Message:
        uniform = jax.random.uniform(key, (numbers_of(message),))

        def rounded(xp: Any, x: Any, draws: Any) -> Any:
            part, exponent = xp.frexp(x)  # x = part 2^exponent, 1/2 <= |part| < 1
            up = draws < 2 * xp.abs(part) - 1
            power = xp.ldexp(xp.ones_like(x), exponent - 1 + up)
            return xp.where(xp.abs(x) < xp.finfo(x.dtype).tiny, 0 * x, xp.sign(x) * power)

        return each(rounded, message, uniform)

    def bits(self, message: Message, cohort: int = 1) -> int:
        return sum(
            leaf.size * (1 + int(np.finfo(leaf.dtype).nexp)) for leaf in jax.tree.leaves(message)
        )


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

    def compress(self, key: Any, message: Message) -> Message:
        uniform = jax.random.uniform(key, (numbers_of(message),))
        leaves = jax.tree.leaves(message)
        xp = _library(leaves)
        norm = xp.sqrt(sum(xp.sum(xp.square(leaf)) for leaf in leaves))
        unit = xp.where(norm > 0, norm, 1) / self.levels

        def rounded(xp: Any, x: Any, draws: Any) -> Any:
            ratio = xp.abs(x) / unit
            level = xp.minimum(xp.floor(ratio) + (draws < ratio - xp.floor(ratio)), self.levels)
            return (xp.sign(x) * level * unit).astype(x.dtype)

        return each(rounded, message, uniform)

    def bits(self, message: Message, cohort: int = 1) -> int:
        return widest(message) + numbers_of(message) * (1 + self.levels.bit_length())


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


def numbers_of(message: Message) -> int:
    """d: the numbers of all arrays of a message."""
    return sum(int(np.prod(leaf.shape)) for leaf in jax.tree.leaves(message))


def _unknown_omega(name: str) -> ScafflixError:
    return ScafflixError(f"The omega of {name} depends on the size of the model; give omega.")


def widest(message: Message) -> int:
    """The bits of a number of the widest type in a message."""
    return 8 * max(leaf.dtype.itemsize for leaf in jax.tree.leaves(message))


def _library(leaves: list[Any]) -> Any:
    """NumPy for its own arrays, which so keep their precision, and JAX for all others."""
    return np if all(isinstance(leaf, np.ndarray) for leaf in leaves) else jnp


def each(function: Callable[..., Any], message: Message, drawn: Any) -> Message:
    """A function of each array and of what was drawn for its numbers."""
    leaves, form = jax.tree.flatten(message)
    xp = _library(leaves)
    cuts = np.cumsum([0, *(int(np.prod(leaf.shape)) for leaf in leaves)])
    drawn = xp.asarray(drawn)
    parts = [
        function(xp, leaf, drawn[first:last].reshape(leaf.shape))
        for leaf, first, last in zip(leaves, cuts[:-1], cuts[1:], strict=True)
    ]
    return jax.tree.unflatten(form, parts)
