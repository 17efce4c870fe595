"""The classifier against scikit-learn's own, against the way of `sx.run`, and on its own terms."""

from __future__ import annotations

import pickle
from typing import Any

import jax
import numpy as np
import pandas as pd
import pytest
import wards
from scipy import sparse
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression

import scafflix as sx

X, site, ill, stage, _ = wards.rows()
L2 = 0.05


@pytest.fixture(scope="module")
def fitted() -> sx.ScafflixClassifier:
    return sx.ScafflixClassifier(alpha=0.5, l2=L2).fit(X, ill, groups=site)


def reference(weight: np.ndarray) -> LogisticRegression:
    """The same loss and penalty, the intercept being a feature like any other."""
    return LogisticRegression(C=1 / L2, fit_intercept=False, tol=1e-10, max_iter=1000).fit(
        wards.standardized(X), ill, sample_weight=weight
    )


def test_without_groups_it_is_logistic_regression_on_all_rows() -> None:
    ours = sx.ScafflixClassifier(l2=L2).fit(X, ill)
    theirs = reference(np.full(len(X), 1 / len(X)))
    expected = theirs.predict_proba(wards.standardized(X))
    np.testing.assert_allclose(ours.predict_proba(X), expected, atol=1e-6)


def test_the_global_model_at_alpha_one_counts_every_site_the_same() -> None:
    ours = sx.ScafflixClassifier(alpha=1, l2=L2).fit(X, ill, groups=site)
    theirs = reference(wards.weights(site))
    expected = theirs.predict_proba(wards.standardized(X))
    np.testing.assert_allclose(ours.predict_proba(X), expected, atol=1e-6)
    np.testing.assert_allclose(ours.predict_proba(X, groups=site), expected, atol=1e-6)


def test_at_alpha_zero_every_site_has_the_model_of_its_own_rows() -> None:
    ours = sx.ScafflixClassifier(alpha=0, l2=L2, scale="none").fit(X / 100, ill, groups=site)
    for name in wards.SITES:
        rows = site == name
        alone = sx.ScafflixClassifier(alpha=0, l2=L2, scale="none")
        alone.fit(X[rows] / 100, ill[rows], groups=site[rows])
        np.testing.assert_allclose(
            ours.predict_proba(X[rows] / 100, groups=site[rows]),
            alone.predict_proba(X[rows] / 100, groups=site[rows]),
            atol=1e-9,
        )


def test_several_classes_are_softmax_regression() -> None:
    ours = sx.ScafflixClassifier(alpha=1, l2=L2).fit(X, stage, groups=site)
    theirs = LogisticRegression(C=1 / L2, fit_intercept=False, tol=1e-10, max_iter=1000).fit(
        wards.standardized(X), stage, sample_weight=wards.weights(site)
    )
    expected = theirs.predict_proba(wards.standardized(X))
    np.testing.assert_allclose(ours.predict_proba(X), expected, atol=1e-6)
    assert ours.classes_.tolist() == [5, 6, 7]
    assert ours.coef_.shape == (3, 3)
    assert ours.site_intercept_.shape == (3, 3)


def test_softmax_of_two_classes_answers_as_a_classifier_of_two() -> None:
    ours = sx.ScafflixClassifier(model="softmax", l2=L2).fit(X, ill, groups=site)
    z = ours.decision_function(X, groups=site)
    assert z.shape == (len(X),)
    odds = ours.predict_proba(X, groups=site)
    np.testing.assert_allclose(np.log(odds[:, 1] / odds[:, 0]), z, rtol=1e-9)
    np.testing.assert_array_equal(ours.predict(X, groups=site), ours.classes_[(z > 0).astype(int)])


def test_it_is_the_way_of_run_and_no_other() -> None:
    fed = sx.data.from_arrays(X, ill, site, scale="standard", intercept=True)
    problem = sx.Problem(fed, sx.models.logistic(), l2=L2)
    person = sx.personalize(problem, alpha="auto")
    method = sx.scafflix(sx.plan(problem, person))
    record = sx.run(problem, person, method, rounds=30, seed=4, start="zeros")
    ours = sx.ScafflixClassifier(l2=L2, rounds=30, seed=4).fit(X, ill, groups=site).record_
    assert record.models.keys() == ours.models.keys()
    for name, array in record.models.items():
        np.testing.assert_array_equal(array, ours.models[name])
    np.testing.assert_array_equal(record.clients["alpha"], ours.clients["alpha"])


def test_coefficients_are_in_the_units_of_the_columns(fitted: sx.ScafflixClassifier) -> None:
    z = X @ fitted.coef_[0] + fitted.intercept_[0]
    np.testing.assert_allclose(fitted.decision_function(X), z, rtol=1e-9)
    assert set(fitted.sites_) == set(wards.SITES)
    for place, name in enumerate(fitted.sites_):
        rows = X[site == name]
        own = rows @ fitted.site_coef_[place, 0] + fitted.site_intercept_[place, 0]
        answered = fitted.decision_function(rows, groups=np.full(len(rows), name))
        np.testing.assert_allclose(answered, own, rtol=1e-9)


def test_a_stranger_is_answered_by_the_global_model(fitted: sx.ScafflixClassifier) -> None:
    mixed = np.where(site == "north", "north", "elsewhere")
    answers = fitted.predict_proba(X, groups=mixed)
    known = site == "north"
    own, common = fitted.predict_proba(X, groups=site), fitted.predict_proba(X)
    np.testing.assert_allclose(answers[known], own[known], rtol=1e-12)
    np.testing.assert_allclose(answers[~known], common[~known], rtol=1e-12)
    assert np.abs(own - common).max() > 0.05


def test_at_alpha_zero_a_stranger_is_refused() -> None:
    alone = sx.ScafflixClassifier(alpha=0).fit(X, ill, groups=site)
    alone.predict(X, groups=site)
    with pytest.raises(sx.ScafflixError, match="there is no global model"):
        alone.predict(X)


def test_a_site_has_one_name_whether_it_is_a_number_or_text() -> None:
    number = np.searchsorted(wards.SITES, site)
    ours = sx.ScafflixClassifier(alpha=0.5).fit(X, ill, groups=number)
    expected = ours.predict_proba(X, groups=number)
    for other in (number.astype(float), number.astype(str), number.tolist()):
        np.testing.assert_array_equal(ours.predict_proba(X, groups=other), expected)


@pytest.mark.parametrize(
    "labels",
    [ill == "ill", ill.astype(object), pd.Series(ill), np.where(ill == "ill", 3.0, 8.0)],
    ids=["truth values", "objects", "series", "numbers"],
)
def test_labels_come_back_as_they_were(labels: Any) -> None:
    predicted = sx.ScafflixClassifier(rounds=20).fit(X, labels, groups=site).predict(X, groups=site)
    assert predicted.dtype == np.asarray(labels).dtype
    assert (predicted == np.asarray(labels)).mean() > 0.8


def test_a_frame_gives_its_names_and_is_held_to_them() -> None:
    frame = pd.DataFrame(X, columns=["age", "pressure", "cells"])
    groups = pd.Series(site, dtype="category")
    ours = sx.ScafflixClassifier(rounds=20).fit(frame, ill, groups=groups)
    assert ours.feature_names_in_.tolist() == [*frame]
    assert ours.score(frame, ill, groups=groups) > 0.8
    assert ours.record_.coefficients("north")["column"].to_pylist() == ["intercept", *frame]
    expected = ours.predict(frame, groups=np.full(len(X), "north"))
    np.testing.assert_array_equal(ours.record_.predict("north", frame), expected)
    with pytest.raises(ValueError, match="feature names should match"):
        ours.predict(frame[["pressure", "age", "cells"]])


@pytest.mark.parametrize("scale", ["maxabs", "none", "standard"])
def test_sparse_features_give_the_same_answers(scale: str) -> None:
    model = sx.ScafflixClassifier(scale=scale, l2=L2, rounds=20)
    rows = np.where(np.abs(X) > 20, X / 100, 0.0)
    expected = clone(model).fit(rows, ill, groups=site).predict_proba(rows, groups=site)
    thin = sparse.csr_array(rows)
    answers = clone(model).fit(thin, ill, groups=site).predict_proba(thin, groups=site)
    np.testing.assert_allclose(answers, expected, atol=1e-9)


def test_methods_with_models_of_their_own_answer_too() -> None:
    ours = sx.ScafflixClassifier(method="ditto", alpha=1, l2=L2).fit(X, ill, groups=site)
    own, common = ours.score(X, ill, groups=site), ours.score(X, ill)
    assert own > common
    assert ours.record_.summary["own_models"]


@pytest.mark.usefixtures("cache")
def test_a_network_learns_what_no_linear_model_can() -> None:
    random = np.random.default_rng(1)
    rows, owner = random.normal(size=(300, 2)), random.choice(["a", "b"], 300)
    labels = np.where(((rows > 0).sum(axis=1) == 1) == (owner == "a"), "yes", "no")
    network = sx.ScafflixClassifier(model="dense", rounds=20, l2=1e-3)
    network.fit(rows, labels, groups=owner)
    assert network.score(rows, labels, groups=owner) > 0.9
    assert sx.ScafflixClassifier().fit(rows, labels, groups=owner).score(rows, labels) < 0.7
    assert network.predict_proba(rows, groups=owner).sum(axis=1) == pytest.approx(1)
    with pytest.raises(AttributeError, match="is not linear: it has no coefficients"):
        _ = network.coef_
    # the same scores as those of the record, which were measured on the held-out rows
    held = sx.data.from_arrays(
        rows, np.unique(labels, return_inverse=True)[1], owner, validation=0.1
    )
    part = held.validation
    assert part is not None
    names = np.array(held.clients)[part.owners]
    right = network.predict(part.features, groups=names) == network.classes_[part.labels]
    for place, name in enumerate(network.sites_):
        measured = network.record_.clients["validation_personal"][place]
        assert right[names == name].mean() == pytest.approx(measured, abs=1e-6)


def test_it_can_be_pickled_and_its_record_saved(
    fitted: sx.ScafflixClassifier, tmp_path: Any
) -> None:
    again = pickle.loads(pickle.dumps(fitted))
    expected = fitted.predict_proba(X, groups=site)
    np.testing.assert_array_equal(again.predict_proba(X, groups=site), expected)
    saved = sx.Record.load(fitted.record_.save(tmp_path / "run"))
    np.testing.assert_array_equal(saved.models["personal"], fitted.record_.models["personal"])


def test_it_computes_in_float64_and_leaves_jax_as_it_is(fitted: sx.ScafflixClassifier) -> None:
    assert fitted.record_.models["global"].dtype == np.float64
    assert fitted.record_.summary["final_gap"] < 1e-9
    assert jax.numpy.ones(2).dtype == np.float32


@pytest.mark.parametrize(
    ("parameters", "labels", "groups", "sentence"),
    [
        ({}, ill, site[:3], "groups: 3 for 60 rows of features; give one per row."),
        ({}, ill, np.where(site == "north", None, site), "groups: values of type object"),
        ({}, np.full(60, "ill"), site, "y has one class, ill; give rows of at least two"),
        ({"model": "logistic"}, stage, site, "Only binary classification is supported"),
        ({"model": "cnn"}, ill, site, "model is 'cnn'; it must be auto, logistic, softmax or"),
        ({"alpha": 2}, ill, site, "alpha is 2 for client number 1"),
        ({"alpha": [0, 1]}, ill, site, "alpha has 2 values, but there are 3 clients"),
        ({"method": "ditto"}, ill, site, "give alpha a number"),
        ({"rounds": 0}, ill, site, "rounds is 0; give a whole number"),
        ({"cohort": 4}, ill, site, "cohort is 4; it must be at least 1 and at most 3"),
        ({"scale": "log"}, ill, site, "scale is 'log'; it must be none, maxabs or standard"),
        ({"intercept": 2}, ill, site, "intercept is 2; it must be true or false"),
        ({"l2": 0}, ill, site, "l2 is 0"),
    ],
)
def test_what_it_cannot_do_is_refused_in_a_sentence(
    parameters: dict[str, Any], labels: Any, groups: Any, sentence: str
) -> None:
    model = sx.ScafflixClassifier(**parameters)
    with pytest.raises(sx.ScafflixError) as refused:
        model.fit(X, labels, groups=groups)
    assert isinstance(refused.value, ValueError)
    assert sentence in str(refused.value)


def test_groups_of_another_length_are_refused_by_a_fitted_one(
    fitted: sx.ScafflixClassifier,
) -> None:
    with pytest.raises(sx.ScafflixError, match="groups: 2 for 60 rows of features"):
        fitted.predict(X, groups=["north", "south"])
