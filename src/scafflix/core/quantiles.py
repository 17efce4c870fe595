"""Quantiles of the distributions that intervals and tests go by."""

from __future__ import annotations

import warnings
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import NDArray


def normal(share: float) -> float:
    """Below it lies this share of the normal distribution.

    >>> round(normal(0.975), 2)
    1.96
    """
    return NormalDist().inv_cdf(share)


def student(freedom: Any, share: float) -> NDArray[np.float64]:
    """The same of Student's distribution with so many degrees of freedom.

    >>> round(float(student(3, 0.975)), 2)
    3.18
    """
    with warnings.catch_warnings():  # importing it adds a filter, which is the user's to choose
        from scipy.special import stdtrit

    return np.asarray(stdtrit(freedom, share))
