"""A local optimum by stochastic gradients with early stopping, for a user's own backend.

This is the rule of `personalization.optima` for one client whose gradients are not compiled: start
from the common point and stop once the validation loss has not fallen for a while. If no stepsize
is given, take the best of a grid.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from scafflix.core.vector import Vector
from scafflix.personalization.optima import GRID, Recipe

Slope = Callable[[Vector, int], Vector]  # (point, number of the step) -> stochastic gradient
Look = Callable[[Vector], float]  # point -> validation loss


def descend(start: Vector, recipe: Recipe, slope: Slope, look: Look) -> Vector:
    """The point with the lowest validation loss along the way.

    >>> def slope(x: Vector, step: int) -> Vector:
    ...     return 2 * (x - Vector((3.0,)))
    >>> def look(x: Vector) -> float:
    ...     return (x.tree[0] - 3.0) ** 2
    >>> round(descend(Vector((0.0,)), Recipe(), slope, look).tree[0], 6)
    3.0
    """
    rates = GRID if recipe.stepsize is None else (recipe.stepsize,)
    found = [_along(rate, start, recipe, slope, look) for rate in rates]
    return min(found, key=lambda one: one[0])[1]


def _along(
    rate: float, start: Vector, recipe: Recipe, slope: Slope, look: Look
) -> tuple[float, Vector]:
    """The lowest validation loss with one stepsize, and its point."""
    x, best, since = start, (look(start), start), 0
    with np.errstate(over="ignore", invalid="ignore"):  # a stepsize may be too large
        for step in range(recipe.steps):
            x = x - rate * slope(x, step)
            if (step + 1) % recipe.check:
                continue
            loss = look(x)
            best, since = ((loss, x), 0) if loss < best[0] else (best, since + 1)
            if since >= recipe.patience:
                break
    return best
