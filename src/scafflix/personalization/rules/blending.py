"""From the clients' curves to alpha_i. What others tell a client are sums over them, by weights
that go with their examples and stay below 100.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from scafflix.core.quantiles import student
from scafflix.core.types import Floats
from scafflix.personalization.rules.contract import GRID, Decision, Evidence, Told

RECIPE = 2  # to be raised when the same curves give other alphas
LEVEL = 0.05  # of the test by which a client's own evidence forbids an alpha
OTHERS = 100.0  # examples that what others tell counts for
NOTHING = Told(np.zeros(len(GRID)), 1.0, 0.0)  # what nobody tells: that there is nothing to gain
# what an alpha costs beyond alpha = 0 by the noise of x_i*, and by the distance of x, for 1 of each
NOISE, DISTANCE = (1 - GRID) ** 2 / 2 - 0.5, GRID**2 / 2
SUMS = len(GRID) + 4


def told(evidence: Evidence) -> Told:
    """What clients with this evidence tell all."""
    return mean(sums(evidence))


def weights(n: Floats) -> Floats:
    """What the curve of a client with n examples counts where those of all are added."""
    return np.asarray(1 / (1 / n + 1 / OTHERS))


def sums(evidence: Evidence) -> Floats:
    """Over those who know something, `[SUMS]`: w_i times the cost of each alpha, its product with
    the curve of noise over n_i, 1, 1/n_i and 1/n_i^2.

    The others' curve counts for 100 examples because clients differ by as much as 100 examples
    leave unknown. So one client tells of all others as much as w_i = 1/(1/n_i + 1/100) examples: a
    large one does not drown the rest, and the curve of a tiny one, which is noise, counts little.
    """
    known = evidence.known
    n, costs = evidence.weight[known], _from_zero(evidence.curves[known])
    w = weights(n)
    return np.array([*(w @ costs), (w / n) @ (costs @ NOISE), w.sum(), w @ (1 / n), w @ (1 / n**2)])


def mean(sums: Floats) -> Told:
    """From the sum of what all clients tell. The noise is that of the least squares fit of

        B DISTANCE(alpha) + (v / n_i) NOISE(alpha)

    to the curves of all, each with its weight: both the shape of the curves and how they change
    with n_i tell of v. The shape alone does not, since curves are no parabolas.
    """
    weight = sums[-3]
    if not weight > 0:
        return NOTHING
    curve, (product, _, scarcity, squares) = sums[: len(GRID)] / weight, sums[len(GRID) :] / weight
    along = NOISE @ DISTANCE / (DISTANCE @ DISTANCE)  # of DISTANCE in NOISE
    found = product - scarcity * along * (DISTANCE @ curve)
    sure = squares * NOISE @ NOISE - scarcity**2 * along * (NOISE @ DISTANCE)
    return Told(curve, float(scarcity), max(0.0, float(found / sure)) if sure > 0 else 0.0)


def for_size(others: Told, n: Floats) -> Floats:
    """What the mean curve would be for clients with n examples each, `[clients, alphas]`."""
    more = others.noise * (1 / n - others.scarcity)
    return np.asarray(others.curve + more[:, None] * NOISE)


def blended_with(evidence: Evidence, others: Told, level: float = LEVEL) -> Decision:
    """The least point of n_i parts of the client's own curve and 100 of what others tell, among
    those that its own evidence does not call worse than its own model."""
    own, known = _from_zero(evidence.curves), evidence.known
    weight = np.where(known, evidence.weight, 0.0)[:, None]
    prior = for_size(others, np.maximum(1.0, evidence.weight))
    curves = (weight * np.where(known[:, None], own, 0.0) + OTHERS * prior) / (weight + OTHERS)
    allowed = ~(harmful(evidence, level) & known[:, None])  # alpha = 0 always is
    return Decision(GRID[np.argmin(np.where(allowed, curves, np.inf), axis=1)], curves)


def harmful(evidence: Evidence, level: float = LEVEL) -> NDArray[np.bool_]:
    """Where a client's own examples say that it is worse off than with its own model: the mean cost
    is above 0 by Student's test, `[clients, alphas]`. At the level 0.5 the sign of the mean
    decides, at 0 nothing is harmful."""
    assert evidence.error is not None
    several = evidence.weight > 1
    quantile = student(np.where(several, evidence.weight - 1, 1.0), 1 - level)[:, None]
    with np.errstate(invalid="ignore"):  # 0 times infinity
        return np.asarray(_from_zero(evidence.curves) > quantile * evidence.error)


def pooled(evidence: Evidence, others: Told) -> Decision:
    """One alpha for all: the least point of the mean curve, whatever it does to whom."""
    clients, least = len(evidence.weight), GRID[np.argmin(others.curve)]
    return Decision(np.full(clients, least), np.tile(others.curve, (clients, 1)))


def _from_zero(curves: Floats) -> Floats:
    """What each alpha is expected to cost beyond the client's own model."""
    return curves - curves[:, :1]
