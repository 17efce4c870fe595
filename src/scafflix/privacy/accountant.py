"""From noise to epsilon, by the library dp-accounting.

Two federations are neighbours if they are the same but for one unit, a client or an example,
whose contribution is nothing in one of them (the library calls this REPLACE_SPECIAL). A
contribution has at most the norm `clip`, so that noise of standard deviation z `clip` makes every
release a Gaussian mechanism with noise multiplier z.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

from scafflix.core.errors import ScafflixError
from scafflix.core.extras import library

LARGEST_NOISE = 1e7
# of Renyi divergences: whole numbers, for which sums are finite; any choice is a valid bound
ORDERS = (*range(2, 65), 80, 96, 128, 192, 256, 512, 1024)
TOLERANCE = 1e-4  # of the noise that is found for an epsilon, relative


class Released(NamedTuple):
    """Noisy sums of contributions."""

    share: float  # the probability with which a contribution is in one of them
    noise: float  # multiplier
    number: int


def accounting() -> Any:
    """The library."""
    return library("dp_accounting", "privacy")


@lru_cache(maxsize=4096)
def epsilon_of_gaussians(spent: float, delta: float) -> float:
    """Of Gaussian mechanisms one after another, with the sum `spent` of 1/z^2.

    Together they are one Gaussian mechanism with z = 1/sqrt(spent), whose epsilon is known exactly
    (Balle and Wang, 2018).
    """
    if spent <= 0:
        return 0.0
    if math.isinf(spent):
        return math.inf
    return float(accounting().get_epsilon_gaussian(1 / math.sqrt(spent), delta))


def epsilon_of_batches(share: float, noise: float, steps: int, delta: float) -> float:
    """Of `steps` gradients, each over examples that are drawn independently with probability
    `share` (Poisson sampling)."""
    return epsilon_of_releases((Released(share, noise, steps),), delta)


@lru_cache(maxsize=4096)
def epsilon_of_releases(made: tuple[Released, ...], delta: float) -> float:
    """Of noisy sums of several kinds, one after another: Renyi divergences of the sampled Gaussian
    mechanism."""
    made = tuple(one for one in made if one.number)
    if not all(one.noise for one in made):
        return math.inf
    whole = epsilon_of_gaussians(sum(one.number / one.noise**2 for one in made), delta)
    if all(one.share >= 1 for one in made):
        return whole
    found = accounting()
    relation = found.NeighboringRelation.REPLACE_SPECIAL
    spent = found.rdp.RdpAccountant(ORDERS, relation)
    for one in made:
        event = found.PoissonSampledDpEvent(min(1.0, one.share), found.GaussianDpEvent(one.noise))
        spent.compose(event, one.number)
    return min(whole, float(spent.get_epsilon(delta)))


@lru_cache(maxsize=4096)
def epsilon_of_cohorts(clients: int, cohort: int, noise: float, rounds: int, delta: float) -> float:
    """Of rounds of `cohort` clients, chosen anew from all in each, without replacement.

    The theorem for this sampling (Wang, Balle and Kasiviswanathan, 2019) is about one client
    replaced by any other, which moves a sum by up to twice the clip; ours is a case of it. It
    speaks of those who do not know whom a round asked.
    """
    if not rounds:
        return 0.0
    if not noise or cohort >= clients:
        return math.inf
    found = accounting()
    relation = found.NeighboringRelation.REPLACE_ONE
    inner = found.GaussianDpEvent(noise / 2)
    event = found.SampledWithoutReplacementDpEvent(clients, cohort, inner)
    spent = found.rdp.RdpAccountant(ORDERS, relation).compose(event, rounds)
    return float(spent.get_epsilon(delta))


def least_noise(epsilon: Callable[[float], float], budget: float) -> float:
    """The smallest noise multiplier, to four digits, whose epsilon is within the budget."""
    low, high = 1e-2, 1.0
    while epsilon(high) > budget:
        low, high = high, 4 * high
        if high > LARGEST_NOISE:
            raise ScafflixError(
                f"No noise brings epsilon to {budget:g} in so many rounds; give a larger budget."
            )
    while high > (1 + TOLERANCE) * low:
        middle = math.sqrt(low * high)
        low, high = (middle, high) if epsilon(middle) > budget else (low, middle)
    return high
