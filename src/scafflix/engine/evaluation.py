"""The FLIX objective at many models at once."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import NDArray

from scafflix import flix
from scafflix.problem import Floats, Losses

LARGEST_CALL = 2**26  # bytes of parameters and predictions in one call
MOST_POINTS = 64


@jax.jit
def _evaluate(losses: Losses, alpha: Array, x_star: Array, x: Array) -> tuple[Array, Array]:
    value, gradient, _ = flix.evaluate(losses, alpha, x_star, x)
    return value, jnp.sum(gradient.reshape(len(x), -1) ** 2, axis=1)


def models_at_once(losses: Losses, clients: int, size: int) -> int:
    """How many models one call takes within its share of memory."""
    predictions = len(losses.weight) * int(np.prod(losses.outputs))
    return int(np.clip(LARGEST_CALL // (8 * (clients * size + predictions)), 1, MOST_POINTS))


def evaluate(
    losses: Losses, x_star: Array, alpha: Floats, models: NDArray[np.float64], at_once: int
) -> tuple[Floats, Floats]:
    """f~ and ||grad f~||^2 `[runs, rounds]` at models `[runs, rounds, *shape]`, with the same
    number of models in every call: one compilation, whatever runs and rounds they come from."""
    runs, rounds = models.shape[:2]
    points = models.reshape(runs * rounds, *models.shape[2:])
    alphas = np.repeat(alpha, rounds, axis=0)
    values, squares = np.empty(len(points)), np.empty(len(points))
    for first in range(0, len(points), at_once):
        # the last call is filled up with what is already there
        chosen = np.arange(first, first + at_once) % len(points)
        value, square = _evaluate(losses, alphas[chosen], x_star, points[chosen])
        stop = min(at_once, len(points) - first)
        values[first : first + stop] = np.asarray(value)[:stop]
        squares[first : first + stop] = np.asarray(square)[:stop]
    return values.reshape(runs, rounds), squares.reshape(runs, rounds)
