"""The area under the ROC curve of each client's model."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse
from sklearn.metrics import roc_auc_score

import scafflix as sx
from scafflix.problems.areas import areas

rng = np.random.default_rng(3)
ROWS = {"a": 30, "b": 12, "c": 5}
FEATURES = {name: rng.integers(-2, 3, (rows, 2)).astype(float) for name, rows in ROWS.items()}
LABELS = {name: rng.integers(0, 2, rows) for name, rows in ROWS.items()} | {"c": np.ones(5, int)}
MODELS = rng.standard_normal((3, 2)).round()  # predictors with ties


@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_array])
def test_the_area_of_each_client_is_that_of_scikit_learn(kind: type) -> None:
    parts = {name: (kind(FEATURES[name]), LABELS[name]) for name in ROWS}
    problem = sx.Problem(sx.data.from_clients(parts), sx.models.logistic())
    found = areas(problem, MODELS, "train")
    for place, name in enumerate(("a", "b")):
        z = FEATURES[name] @ MODELS[place]
        assert found[place] == pytest.approx(roc_auc_score(LABELS[name], z))
    assert np.isnan(found[2])  # no example of the first class


def test_more_than_two_classes_have_no_area() -> None:
    fed = sx.data.from_clients({"a": (np.eye(3), [0, 1, 2])})
    problem = sx.Problem(fed, sx.models.softmax())
    with pytest.raises(sx.ScafflixError, match="a linear model of two classes"):
        areas(problem, np.zeros((1, 3)), "train")
