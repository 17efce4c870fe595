"""What a rule for alpha is: what each client knows of its segment, and what is made of it.

A client judges the points alpha x + (1 - alpha) x_i* from its own data, x and x_i* alone. What it
would tell others is its curve: the loss that it expects at each alpha of the grid. How sure it can
be of the curve, its examples tell too.
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
    # [clients, alphas], the standard error of what an alpha costs beyond alpha = 0
    error: Floats | None = None
    alpha: Floats | None = None  # [clients], where a formula gives the least point directly

    @property
    def known(self) -> NDArray[np.bool_]:
        """Which clients can tell anything."""
        return np.asarray(np.isfinite(self.curves).all(axis=1))


def evidence_of(
    losses: Floats, owners: NDArray[np.int64], clients: int, entries: Floats | None = None
) -> Evidence:
    """The mean loss of each client over its examples, and the error of that mean, from the loss of
    each example at every alpha `[examples, alphas]`. An example may be the sum of several entries:
    then the mean is over these, but examples are what is independent."""
    entries = np.ones(len(losses)) if entries is None else entries
    counts = np.bincount(owners, minlength=clients).astype(float)
    total = np.bincount(owners, entries, minlength=clients)[:, None]

    def summed(values: Floats) -> Floats:
        sums = np.zeros((clients, losses.shape[1]))
        np.add.at(sums, owners, values)
        return sums

    with np.errstate(invalid="ignore", divide="ignore"):
        curves, apart = summed(losses) / total, losses - losses[:, :1]
        rest = apart - (summed(apart) / total)[owners] * entries[:, None]
        variance = summed(rest**2) * (counts / (counts - 1))[:, None] / total**2
    error = np.where(counts[:, None] > 1, np.sqrt(variance), np.inf)  # one example tells of none
    return Evidence(curves, counts, error)


class Told(NamedTuple):
    """What the clients that know something tell all, as weighted means over them."""

    curve: Floats  # [alphas], what each alpha costs beyond alpha = 0
    scarcity: float  # 1/n_i
    noise: float  # v: own models of n_i examples have the noise v/n_i


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
