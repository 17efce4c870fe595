"""Random streams: one seed, and a separate stream for each thing that is drawn."""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum

import jax
import numpy as np
from jax import Array
from numpy.typing import NDArray

from scafflix.core.precision import in_float64


class Stream(IntEnum):
    """What a stream is for; the numbers are part of what a seed means."""

    COIN = 1
    GRADIENT = 2
    COHORT = 3
    MODEL = 4
    OPTIMA = 5
    OWN_STEPS = 6
    COMPRESSION = 7
    RESAMPLING = 8
    SERVER = 9  # the noise that a server adds


@in_float64
def key(seed: int, purpose: Stream) -> Array:
    """The key of a stream that the compiled program draws from; seeds have more than 32 bits."""
    return _key(np.int64(seed), int(purpose))


@in_float64
def at_round(seed: int, purpose: Stream, round: int) -> Array:
    """What all clients of a round draw from."""
    return _at_round(np.int64(seed), int(purpose), np.uint32(round))


@in_float64
def keys(seeds: Sequence[int], purpose: Stream) -> Array:
    """The keys of as many runs, one after another."""
    return _keys(np.array(seeds, np.int64), int(purpose))


@jax.jit
def _key(seed: Array, purpose: Array) -> Array:
    return jax.random.fold_in(jax.random.key(seed), purpose)


@jax.jit
def _at_round(seed: Array, purpose: Array, round: Array) -> Array:
    """One program instead of three, which every process of a federation compiles at its start."""
    return jax.random.fold_in(_key(seed, purpose), round)


_keys = jax.jit(jax.vmap(_key, (0, None)))


def at_step(key: Array, round: int, client: int, step: int) -> Array:
    """What one client draws its gradients from in one step."""
    return jax.random.fold_in(jax.random.fold_in(jax.random.fold_in(key, round), client), step)


def uniforms(seed: int, purpose: Stream, first: int, number: int) -> NDArray[np.float64]:
    """Numbers first, first + 1, ... of a stream in (0, 1], each from the seed and its place
    alone, so that nothing before it need be drawn.

    >>> bool(uniforms(0, Stream.COIN, 0, 5)[3] == uniforms(0, Stream.COIN, 3, 1)[0])
    True
    """
    bits = np.random.Philox(key=[seed, int(purpose)], counter=first)
    # a place of the counter is worth four numbers, of which the first is taken
    return 1.0 - np.random.Generator(bits).random(4 * number)[::4]


def generator(seed: int, purpose: Stream, place: int) -> np.random.Generator:
    """A generator of as many numbers as are wanted at one place of a stream."""
    return np.random.Generator(np.random.Philox(key=[seed, int(purpose)], counter=[0, place, 0, 0]))
