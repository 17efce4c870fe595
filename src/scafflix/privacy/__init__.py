"""Differential privacy: what is protected, how much noise, and what has been spent."""

from scafflix.privacy.accountant import (
    Released,
    epsilon_of_batches,
    epsilon_of_cohorts,
    epsilon_of_gaussians,
    epsilon_of_releases,
    least_noise,
)
from scafflix.privacy.terms import PLACES, UNITS, Limit, Release, default_delta

__all__ = [
    "PLACES",
    "UNITS",
    "Limit",
    "Release",
    "Released",
    "default_delta",
    "epsilon_of_batches",
    "epsilon_of_cohorts",
    "epsilon_of_gaussians",
    "epsilon_of_releases",
    "least_noise",
]
