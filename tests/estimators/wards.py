"""Rows of a few sites that agree on some features and disagree on others."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

SITES = ("north", "south", "west")
ROWS = 60


class Rows(NamedTuple):
    """Features in units of their own, the sites of the rows, and what may be predicted."""

    X: NDArray[np.float64]
    site: NDArray[np.str_]
    ill: NDArray[np.str_]  # two classes
    stage: NDArray[np.int64]  # three classes
    stay: NDArray[np.float64]  # a number


def rows() -> Rows:
    """Of each site another number, in any order."""
    random = np.random.default_rng(0)
    site = random.choice(SITES, ROWS, p=(0.5, 0.3, 0.2))
    a = random.normal(size=(ROWS, 3))
    z = a[:, 0] + np.where(site == "north", 2.0, -1.0) * a[:, 1] + 0.5 * random.normal(size=ROWS)
    X = a * [1.0, 20.0, 300.0] + [0.0, 50.0, -1000.0]
    return Rows(X, site, np.where(z > 0, "ill", "well"), np.digitize(z, [-1, 1]) + 5, 40 + 7 * z)


def standardized(X: NDArray[Any], intercept: bool = True) -> NDArray[np.float64]:
    """Features as the estimators train on them."""
    scaled = (X - X.mean(axis=0)) / X.std(axis=0)
    return np.hstack([scaled, np.ones((len(X), 1))]) if intercept else scaled


def weights(site: NDArray[Any]) -> NDArray[np.float64]:
    """What a row counts when every site counts the same; the sum is 1."""
    names, owner, counts = np.unique(site, return_inverse=True, return_counts=True)
    return 1 / (len(names) * counts[owner])
