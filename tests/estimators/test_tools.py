"""Estimators in scikit-learn's pipelines, searches and folds."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import numpy as np
import pytest
import sklearn
import wards
from sklearn.base import clone
from sklearn.model_selection import (
    GridSearchCV,
    GroupKFold,
    LeaveOneGroupOut,
    StratifiedKFold,
    cross_val_score,
)
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import scafflix as sx

X, site, ill, _, stay = wards.rows()


@pytest.fixture
def routing() -> Iterator[None]:
    with sklearn.config_context(enable_metadata_routing=True):
        yield


def test_a_pipeline_hands_on_groups_by_the_name_of_its_step() -> None:
    model = sx.ScafflixClassifier(scale="none", rounds=20)
    direct = clone(model).fit(wards.standardized(X, False), ill, groups=site)
    pipeline = make_pipeline(StandardScaler(), model)
    pipeline.fit(X, ill, scafflixclassifier__groups=site)
    expected = direct.predict_proba(wards.standardized(X, False), groups=site)
    np.testing.assert_allclose(pipeline.predict_proba(X, groups=site), expected, atol=1e-9)


@pytest.mark.usefixtures("routing")
def test_where_metadata_are_routed_a_pipeline_asks_for_groups() -> None:
    pipeline = make_pipeline(StandardScaler(), sx.ScafflixRegressor(rounds=20))
    pipeline.fit(X, stay, groups=site)
    assert pipeline.score(X, stay, groups=site) > pipeline.score(X, stay)
    assert pipeline[-1].sites_.size == 3


@pytest.mark.usefixtures("routing")
def test_a_search_over_groupwise_folds_measures_what_a_new_site_gets() -> None:
    search = GridSearchCV(
        sx.ScafflixClassifier(rounds=20), {"l2": np.logspace(-3, 0, 2)}, cv=LeaveOneGroupOut()
    )
    search.fit(X, ill, groups=site)
    for l2, found in zip(np.logspace(-3, 0, 2), search.cv_results_["mean_test_score"], strict=True):
        scores = []
        for name in np.unique(site):
            rest, new = site != name, site == name
            model = sx.ScafflixClassifier(rounds=20, l2=l2).fit(X[rest], ill[rest], site[rest])
            scores.append(model.score(X[new], ill[new]))  # the global model's
        assert found == pytest.approx(np.mean(scores))
    assert search.score(X, ill, groups=site) == search.best_estimator_.score(X, ill, groups=site)


@pytest.mark.usefixtures("routing")
def test_folds_of_rows_measure_what_sites_take_home() -> None:
    folds, model = StratifiedKFold(3), sx.ScafflixClassifier(rounds=20, alpha=0)
    found = cross_val_score(model, X, ill, params={"groups": site}, cv=folds)
    expected = []
    for train, test in folds.split(X, ill):
        one = clone(model).fit(X[train], ill[train], site[train])
        expected.append(one.score(X[test], ill[test], groups=site[test]))
    np.testing.assert_allclose(found, expected)


@pytest.mark.usefixtures("routing")
def test_a_word_for_the_score_measures_the_global_model() -> None:
    folds, model = StratifiedKFold(3), sx.ScafflixClassifier(rounds=20, alpha=0.1)
    found = cross_val_score(model, X, ill, params={"groups": site}, cv=folds, scoring="accuracy")
    for (train, test), score in zip(folds.split(X, ill), found, strict=True):
        one = clone(model).fit(X[train], ill[train], site[train])
        assert one.score(X[test], ill[test]) == score


@pytest.mark.usefixtures("routing")
def test_an_estimator_can_be_told_not_to_ask_for_groups() -> None:
    deaf = sx.ScafflixClassifier(rounds=20).set_fit_request(groups=False)
    deaf = deaf.set_score_request(groups=False)
    found = cross_val_score(deaf, X, ill, params={"groups": site}, cv=GroupKFold(2))
    for (train, test), score in zip(GroupKFold(2).split(X, ill, site), found, strict=True):
        one = sx.ScafflixClassifier(rounds=20).fit(X[train], ill[train])
        assert one.score(X[test], ill[test]) == score


def test_importing_the_package_does_not_load_scikit_learn() -> None:
    script = "import sys, scafflix as sx; print('sklearn' in sys.modules, sx.ScafflixRegressor())"
    words = [sys.executable, "-c", script]
    said = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    assert said == "False ScafflixRegressor()\n"
