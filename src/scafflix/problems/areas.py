"""The area under the ROC curve, for labels of two classes that are far from equally frequent."""

from __future__ import annotations

import itertools

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata

from scafflix.core.errors import ScafflixError
from scafflix.core.types import Floats
from scafflix.problems.problem import Problem


def areas(problem: Problem, models: Floats, part: str = "test") -> Floats:
    """Of each client's linear model `[clients, features]`: how likely its predictor is larger for a
    random example of the second class than for one of the first; NaN where one of them is absent.

    >>> from scafflix.data import from_clients
    >>> from scafflix.models import logistic
    >>> rows = [[0.0], [1.0], [2.0], [2.0]]
    >>> problem = Problem(from_clients({"a": (rows, [0, 1, 0, 1])}), logistic())
    >>> areas(problem, np.array([[1.0]]), "train").tolist()
    [0.625]
    """
    if not problem.linear or problem.targets.outputs or len(problem.targets.classes) != 2:
        raise ScafflixError("The area under the curve is of a linear model of two classes.")
    examples, second = problem.federation.parts[part], problem.labels[part] > 0
    z = _predictions(problem, models, part)
    spans = itertools.pairwise(examples.offsets)
    return np.array([_area(z[a:b], second[a:b]) for a, b in spans])


def _predictions(problem: Problem, models: Floats, part: str) -> Floats:
    """a_ij x_i of every example."""
    features = problem.federation.parts[part].features
    mine = np.repeat(models, problem.federation.parts[part].counts, axis=0)
    if isinstance(features, np.ndarray):
        return np.asarray(np.einsum("jd,jd->j", features, mine))
    return np.asarray(features.multiply(mine).sum(axis=1), np.float64).ravel()


def _area(z: Floats, second: NDArray[np.bool_]) -> float:
    """By the ranks of the second class: the statistic of Mann and Whitney; ties count half."""
    those, others = int(second.sum()), int((~second).sum())
    if not those or not others:
        return float("nan")
    least = those * (those + 1) / 2  # the sum of ranks if all of the others were above
    return float((rankdata(z)[second].sum() - least) / (those * others))
