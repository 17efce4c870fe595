"""The FLIX objective at many models at once."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import NDArray

from scafflix.core.types import Floats
from scafflix.personalization import flix
from scafflix.problems.losses import Losses

LARGEST_CALL = 2**26  # bytes of parameters and predictions in one call
MOST_POINTS = 64


@jax.jit
def _evaluate(losses: Losses, alpha: Array, x_star: Array, x: Array) -> Array:
    value, gradient, _ = flix.evaluate(losses, alpha, x_star, x)
    return jnp.stack([value, jnp.sum(gradient.reshape(len(x), -1) ** 2, axis=1)])


def models_at_once(losses: Losses, clients: int, size: int) -> int:
    """How many models one call takes within its share of memory."""
    predictions = len(losses.weight) * int(np.prod(losses.outputs))
    return int(np.clip(LARGEST_CALL // (8 * (clients * size + predictions)), 1, MOST_POINTS))


def evaluate(
    losses: Losses,
    x_star: Array,
    alpha: Floats,
    models: NDArray[np.float64],
    first: int,
    at_once: int,
) -> tuple[Floats, Floats]:
    """f~ and ||grad f~||^2 `[runs, rounds]` at models `[runs, rounds, *shape]`, the first of which
    are those of round `first`.

    Every call takes the same number of models: one compilation. And a model's place in its call
    depends on its run and round alone, so that its last bits do not depend on the chunk.
    """
    runs, rounds = models.shape[:2]
    points = models.swapaxes(0, 1).reshape(rounds * runs, *models.shape[2:])
    found = np.empty((2, len(points)))
    for start in range(-(first * runs % at_once), len(points), at_once):
        place = np.arange(start, start + at_once)
        inside = (place >= 0) & (place < len(points))
        chosen = np.clip(place, 0, len(points) - 1)  # a call that is not full repeats a model
        results = _evaluate(losses, alpha[chosen % runs], x_star, points[chosen])
        found[:, place[inside]] = np.asarray(results)[:, inside]
    values, squares = found.reshape(2, rounds, runs).swapaxes(1, 2)
    return values, squares


def objective(losses: Losses, x_star: Floats, alpha: Floats, x: Floats) -> tuple[float, float]:
    """f~ and ||grad f~||^2 at one model."""
    value, square = np.asarray(_evaluate(losses, alpha[None], jnp.asarray(x_star), x[None]))[:, 0]
    return float(value), float(square)
