"""Random numbers of private gradients and messages, from a source that nobody else has."""

from __future__ import annotations

import os
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from scafflix.federate.learner import Place


class Draws(Protocol):
    """Where the random numbers of a step come from."""

    def uniforms(self, place: Place, count: int) -> NDArray[Any]:
        """Numbers in (0, 1) that say which examples take part."""

    def normals(self, place: Place, number: int, shape: tuple[int, ...]) -> NDArray[Any]:
        """The noise at one of the points that are asked about."""


class Secret:
    """From the operating system, whatever the place: a seed that the server knows would let it
    subtract the noise, and know who took part."""

    def uniforms(self, place: Place, count: int) -> NDArray[Any]:
        return secret_uniforms((count,))

    def normals(self, place: Place, number: int, shape: tuple[int, ...]) -> NDArray[Any]:
        return secret_normals(shape)


def secret_uniforms(shape: tuple[int, ...]) -> NDArray[np.float64]:
    """Numbers in (0, 1) from the operating system's random source."""
    return _uniforms_of(os.urandom(8 * int(np.prod(shape)))).reshape(shape)


def secret_normals(shape: tuple[int, ...]) -> NDArray[np.float64]:
    """Normal numbers from the operating system's random source."""
    return normals_of(os.urandom(8 * int(np.prod(shape)))).reshape(shape)


def normals_of(random: bytes) -> NDArray[np.float64]:
    """A normal number of every eight random bytes."""
    found: NDArray[np.float64] = ndtri(_uniforms_of(random))
    return found


def _uniforms_of(random: bytes) -> NDArray[np.float64]:
    """Numbers in (0, 1)."""
    bits = np.frombuffer(random, np.uint64) >> np.uint64(11)
    return (bits.astype(np.float64) + 0.5) / 2.0**53
