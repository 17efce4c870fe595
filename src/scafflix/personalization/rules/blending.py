"""From the clients' curves to alpha_i. What others tell a client is the sum of their curves."""

from __future__ import annotations

import numpy as np

from scafflix.core.types import Floats
from scafflix.personalization.rules.contract import GRID, Decision, Evidence

OTHERS = 100.0  # examples that the mean curve counts for


def blended(evidence: Evidence) -> Decision:
    """The least point of n_i parts of the client's own curve and 100 of the mean curve, among
    those at which its own evidence expects no more than of its own model."""
    return blended_with(evidence, mean_curve(evidence))


def blended_with(evidence: Evidence, mean: Floats) -> Decision:
    """The same with the mean curve of others."""
    own, known = _gains(evidence.curves), evidence.known
    weight = np.where(known, evidence.weight, 0.0)[:, None]
    curves = (weight * np.where(known[:, None], own, 0.0) + OTHERS * mean) / (weight + OTHERS)
    harmless = (own <= 0) | ~known[:, None]  # alpha = 0 always is
    return Decision(GRID[np.argmin(np.where(harmless, curves, np.inf), axis=1)], curves)


def pooled(evidence: Evidence) -> Decision:
    """One alpha for all: the least point of the mean curve, whatever it does to whom."""
    mean = mean_curve(evidence)
    clients = len(evidence.weight)
    return Decision(np.full(clients, GRID[np.argmin(mean)]), np.tile(mean, (clients, 1)))


def mean_curve(evidence: Evidence) -> Floats:
    """The mean over the clients that know something, counted from alpha = 0; 0 if nobody does."""
    known = evidence.curves[evidence.known]
    return _gains(known).mean(axis=0) if len(known) else np.zeros(len(GRID))


def _gains(curves: Floats) -> Floats:
    """What each alpha is expected to cost beyond the client's own model."""
    return curves - curves[:, :1]
