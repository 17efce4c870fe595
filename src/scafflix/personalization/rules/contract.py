"""What a rule for alpha is: what each client knows of its segment, and what is made of it.

A client judges the points alpha x + (1 - alpha) x_i* from its own data, x and x_i* alone. What it
would tell others is its curve: the loss that it expects at each alpha of the grid.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from scafflix.core.types import Floats
from scafflix.problems.problem import Problem

GRID: Floats = np.linspace(0.0, 1.0, 21)


class Evidence(NamedTuple):
    """What the clients know of their segments, each from its own data."""

    curves: Floats  # [clients, alphas], the loss expected at each alpha; NaN of one who knows none
    weight: Floats  # [clients], the examples that it rests on
    alpha: Floats | None = None  # [clients], where a formula gives the least point directly

    @property
    def known(self) -> NDArray[np.bool_]:
        """Which clients can tell anything."""
        return np.asarray(np.isfinite(self.curves).all(axis=1))


class Told(NamedTuple):
    """What the clients that know something tell all."""

    curve: Floats  # [alphas], the mean of their curves, each counted from alpha = 0
    scarcity: float  # the mean of 1/n_i


class Decision(NamedTuple):
    """alpha_i, and the curve whose least point it is."""

    alpha: Floats  # [clients]
    curves: Floats  # [clients, alphas]


class Rule(NamedTuple):
    """How alpha_i is chosen once x is there."""

    name: str
    check: Callable[[Problem], None]  # refuses a problem that the rule cannot serve
    ignorant: str  # of a client that knows nothing: why, and what it does instead
    evidence: Callable[[Problem, Any, Any], Evidence]  # of a problem, all x_i* and x
    decide: Callable[[Evidence, Told], Decision]
    consults: bool = True  # whether a decision depends on what others tell
