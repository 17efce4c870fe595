"""The FLIX objective at many models at once."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import NDArray

from scafflix import flix
from scafflix.problem import Floats, Losses

POINTS = 64  # models in one call, whatever the runs and rounds they come from: one compilation


@jax.jit
def _evaluate(losses: Losses, alpha: Array, x_star: Array, x: Array) -> tuple[Array, Array]:
    value, gradient, _ = flix.evaluate(losses, alpha, x_star, x)
    return value, jnp.sum(gradient.reshape(len(x), -1) ** 2, axis=1)


def evaluate(
    losses: Losses, x_star: Array, alpha: Floats, models: NDArray[np.float64]
) -> tuple[Floats, Floats]:
    """f~ and ||grad f~||^2 `[runs, rounds]` at models `[runs, rounds, *shape]`."""
    runs, rounds = models.shape[:2]
    points = models.reshape(runs * rounds, *models.shape[2:])
    alphas = np.repeat(alpha, rounds, axis=0)
    values, squares = np.empty(len(points)), np.empty(len(points))
    for first in range(0, len(points), POINTS):
        # the last call is filled up with what is already there
        chosen = np.arange(first, first + POINTS) % len(points)
        value, square = _evaluate(losses, alphas[chosen], x_star, points[chosen])
        stop = min(POINTS, len(points) - first)
        values[first : first + stop] = np.asarray(value)[:stop]
        squares[first : first + stop] = np.asarray(square)[:stop]
    return values.reshape(runs, rounds), squares.reshape(runs, rounds)
