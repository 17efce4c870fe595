"""A local optimum by stochastic gradients with early stopping, where gradients are not compiled.

This is the rule of `personalization.optima` for one client: start from the common point and stop
once the validation loss has not fallen for a while.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from scafflix.personalization.recipe import GRID, Recipe

Point = Any  # with +, - and multiplication by a number
Slope = Callable[[Point, int], Point]  # (point, number of the step) -> stochastic gradient
Look = Callable[[Point], float]  # point -> validation loss


class Best(NamedTuple):
    """The point with the lowest validation loss along the way, and after how many steps."""

    x: Point
    loss: float
    steps: int


def descend(start: Point, recipe: Recipe, slope: Slope, look: Look) -> Point:
    """The best point with the recipe's stepsize; if it has none, the best of a grid.

    >>> from scafflix.core.vector import Vector
    >>> def slope(x: Vector, step: int) -> Vector:
    ...     return 2 * (x - Vector((3.0,)))
    >>> def look(x: Vector) -> float:
    ...     return (x.tree[0] - 3.0) ** 2
    >>> round(descend(Vector((0.0,)), Recipe(), slope, look).tree[0], 6)
    3.0
    """
    rates = GRID if recipe.stepsize is None else (recipe.stepsize,)
    found = [along(rate, start, recipe, slope, look) for rate in rates]
    return min(found, key=lambda one: one.loss).x


def along(
    rate: float, start: Point, recipe: Recipe, slope: Slope, look: Look, made: int = 0
) -> Best:
    """The best point with one stepsize; of a search that goes on, after so many looks."""
    x, best, since = start, Best(start, look(start), made * recipe.check), 0
    with np.errstate(over="ignore", invalid="ignore"):  # a stepsize may be too large
        for number in range(made, recipe.looks):
            for step in range(number * recipe.check, (number + 1) * recipe.check):
                x = x - rate * slope(x, step)
            loss = look(x)
            if loss < best.loss or (not recipe.patience and np.isfinite(loss)):
                best, since = Best(x, loss, (number + 1) * recipe.check), 0
            elif recipe.patience and (since := since + 1) >= recipe.patience:
                break
    return best
