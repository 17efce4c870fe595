"""From the clients' curves to alpha_i. What others tell a client are sums over their examples: of
what each alpha costs beyond alpha = 0, and their number.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from scafflix.core.quantiles import student
from scafflix.core.types import Floats
from scafflix.personalization.rules.contract import GRID, Decision, Evidence, Told

LEVEL = 0.05  # of the test by which a client's own evidence forbids an alpha
OTHERS = 100.0  # examples that what others tell counts for
NOTHING = Told(np.zeros(len(GRID)), 1.0)  # what nobody tells: that there is nothing to gain


def told(evidence: Evidence) -> Told:
    """What clients with this evidence tell all."""
    costs, examples = sums(evidence)
    return mean(costs, examples, int(evidence.known.sum()))


def sums(evidence: Evidence) -> tuple[Floats, float]:
    """Over the examples of those who know something: costs at every alpha, and their number."""
    known = evidence.known
    weight = evidence.weight[known]
    return weight @ _from_zero(evidence.curves[known]), float(weight.sum())


def mean(costs: Floats, examples: float, clients: int) -> Told:
    """From sums over the examples of so many clients: all examples count the same, so that a client
    with few of them, whose curve is noise, moves the mean little."""
    return Told(costs / examples, clients / examples) if clients else NOTHING


def for_size(others: Told, n: Floats) -> Floats:
    """What the mean curve would be for clients with n examples each, `[clients, alphas]`.

    About (1/2) (alpha^2 B + (1 - alpha)^2 V) beyond a constant: B is how far x is from what a
    client looks for, V the noise of its own model, which goes with 1/n.
    """
    noise, distance = (1 - GRID) ** 2 / 2 - 0.5, GRID**2 / 2
    fitted, *_ = np.linalg.lstsq(np.stack([noise, distance], axis=1), others.curve, rcond=None)
    V = max(0.0, float(fitted[0]))
    more = V * (1 / (n * others.scarcity) - 1)
    return np.asarray(others.curve + more[:, None] * noise)


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
