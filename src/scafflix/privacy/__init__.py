"""Differential privacy: what is protected, how much noise, and what has been spent."""

from scafflix.privacy.accountant import (
    epsilon_of_batches,
    epsilon_of_cohorts,
    epsilon_of_gaussians,
    least_noise,
)
from scafflix.privacy.terms import UNITS, Limit, Release, default_delta

__all__ = [
    "UNITS",
    "Limit",
    "Release",
    "default_delta",
    "epsilon_of_batches",
    "epsilon_of_cohorts",
    "epsilon_of_gaussians",
    "least_noise",
]
