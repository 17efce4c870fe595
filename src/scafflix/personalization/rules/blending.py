"""From the clients' curves to alpha_i. What others tell a client are sums: of their curves, and of
1/n_i over their numbers of examples.
"""

from __future__ import annotations

import numpy as np

from scafflix.core.types import Floats
from scafflix.personalization.rules.contract import GRID, Decision, Evidence, Told

OTHERS = 100.0  # examples that what others tell counts for
NOTHING = Told(np.zeros(len(GRID)), 1.0)  # what nobody tells: that there is nothing to gain


def told(evidence: Evidence) -> Told:
    """What clients with this evidence tell all."""
    known = evidence.known
    curves, scarcities = _from_zero(evidence.curves[known]), 1 / evidence.weight[known]
    return mean(curves.sum(axis=0), float(scarcities.sum()), int(known.sum()))


def mean(curves: Floats, scarcities: float, known: int) -> Told:
    """From sums over those who know something."""
    return Told(curves / known, scarcities / known) if known else NOTHING


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


def blended_with(evidence: Evidence, others: Told) -> Decision:
    """The least point of n_i parts of the client's own curve and 100 of what others tell, among
    those at which its own evidence expects no more than of its own model."""
    own, known = _from_zero(evidence.curves), evidence.known
    weight = np.where(known, evidence.weight, 0.0)[:, None]
    prior = for_size(others, np.maximum(1.0, evidence.weight))
    curves = (weight * np.where(known[:, None], own, 0.0) + OTHERS * prior) / (weight + OTHERS)
    harmless = (own <= 0) | ~known[:, None]  # alpha = 0 always is
    return Decision(GRID[np.argmin(np.where(harmless, curves, np.inf), axis=1)], curves)


def pooled(evidence: Evidence, others: Told) -> Decision:
    """One alpha for all: the least point of the mean curve, whatever it does to whom."""
    clients, least = len(evidence.weight), GRID[np.argmin(others.curve)]
    return Decision(np.full(clients, least), np.tile(others.curve, (clients, 1)))


def _from_zero(curves: Floats) -> Floats:
    """What each alpha is expected to cost beyond the client's own model."""
    return curves - curves[:, :1]
