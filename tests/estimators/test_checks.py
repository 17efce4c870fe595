"""scikit-learn's own checks of estimators. All of them pass; the one that is skipped runs where
SciPy's array interface is switched on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

import scafflix as sx

SMALL = {"batch": 5, "rounds": 20}  # some checks have ten rows


# in checks with few rows a site has too few, or of one class alone, to choose alpha by
@pytest.mark.filterwarnings("ignore::scafflix.ScafflixWarning")
@parametrize_with_checks(
    [
        sx.ScafflixClassifier(),
        sx.ScafflixRegressor(),
        sx.ScafflixClassifier(model="dense", **SMALL),
    ]
)
@pytest.mark.usefixtures("cache")
def test_an_estimator_passes_scikit_learns_checks(
    estimator: Any, check: Callable[[Any], None]
) -> None:
    check(estimator)
