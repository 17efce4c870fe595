"""From the clients' curves to alpha_i. What others tell a client are sums: of their curves, and of
1/n_i over their numbers of examples.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from scafflix.core.types import Floats
from scafflix.personalization.rules.contract import GRID, Decision, Evidence

OTHERS = 100.0  # examples that what others tell counts for


class Told(NamedTuple):
    """What the clients that know something tell all."""

    curve: Floats  # [alphas], the mean of their curves, each counted from alpha = 0
    scarcity: float  # the mean of 1/n_i


def told(evidence: Evidence) -> Told:
    """The means over those who know something; if nobody does, that there is nothing to gain."""
    known = evidence.known
    if not known.any():
        return Told(np.zeros(len(GRID)), 1.0)
    curve = _from_zero(evidence.curves[known]).mean(axis=0)
    return Told(curve, float(np.mean(1 / evidence.weight[known])))


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


def blended(evidence: Evidence) -> Decision:
    """The least point of n_i parts of the client's own curve and 100 of what others tell, among
    those at which its own evidence expects no more than of its own model."""
    return blended_with(evidence, told(evidence))


def blended_with(evidence: Evidence, others: Told) -> Decision:
    """The same for clients that were not among those who told it."""
    own, known = _from_zero(evidence.curves), evidence.known
    weight = np.where(known, evidence.weight, 0.0)[:, None]
    prior = for_size(others, np.maximum(1.0, evidence.weight))
    curves = (weight * np.where(known[:, None], own, 0.0) + OTHERS * prior) / (weight + OTHERS)
    harmless = (own <= 0) | ~known[:, None]  # alpha = 0 always is
    return Decision(GRID[np.argmin(np.where(harmless, curves, np.inf), axis=1)], curves)


def pooled(evidence: Evidence) -> Decision:
    """One alpha for all: the least point of the mean curve, whatever it does to whom."""
    mean, clients = told(evidence).curve, len(evidence.weight)
    return Decision(np.full(clients, GRID[np.argmin(mean)]), np.tile(mean, (clients, 1)))


def _from_zero(curves: Floats) -> Floats:
    """What each alpha is expected to cost beyond the client's own model."""
    return curves - curves[:, :1]
