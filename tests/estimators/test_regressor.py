"""The regression against ridge regression of scikit-learn."""

from __future__ import annotations

import numpy as np
import pytest
import wards
from numpy.typing import NDArray
from sklearn.linear_model import Ridge

import scafflix as sx

X, site, _, _, stay = wards.rows()
L2 = 0.02


def reference(rows: NDArray[np.bool_] | slice, weight: NDArray[np.float64]) -> NDArray[np.float64]:
    """Ridge regression of some rows on features and a target that all rows standardize."""
    features, target = wards.standardized(X), (stay - stay.mean()) / stay.std()
    ridge = Ridge(L2, fit_intercept=False, solver="cholesky")
    ridge.fit(features[rows], target[rows], sample_weight=weight)
    return stay.mean() + stay.std() * ridge.predict(features)


def test_the_global_model_at_alpha_one_is_ridge_regression() -> None:
    ours = sx.ScafflixRegressor(alpha=1, l2=L2).fit(X, stay, groups=site)
    expected = reference(slice(None), wards.weights(site))
    np.testing.assert_allclose(ours.predict(X), expected, rtol=1e-7)


def test_at_alpha_zero_every_site_has_its_own_ridge_regression() -> None:
    ours = sx.ScafflixRegressor(alpha=0, l2=L2).fit(X, stay, groups=site)
    for name in wards.SITES:
        rows = site == name
        expected = reference(rows, np.full(rows.sum(), 1 / rows.sum()))
        answers = ours.predict(X, groups=np.full(len(X), name))
        np.testing.assert_allclose(answers, expected, rtol=1e-9)


def test_coefficients_are_in_the_units_of_columns_and_target() -> None:
    ours = sx.ScafflixRegressor(alpha=0.5, rounds=20).fit(X, stay, groups=site)
    np.testing.assert_allclose(ours.predict(X), X @ ours.coef_ + ours.intercept_, rtol=1e-9)
    own = X @ ours.site_coef_.T + ours.site_intercept_
    place = {name: k for k, name in enumerate(ours.sites_)}
    expected = own[np.arange(len(X)), [place[name] for name in site]]
    np.testing.assert_allclose(ours.predict(X, groups=site), expected, rtol=1e-9)


def test_another_unit_of_the_target_is_the_same_regression() -> None:
    model = sx.ScafflixRegressor(rounds=20)
    days = model.fit(X, stay, groups=site).predict(X, groups=site)
    hours = model.fit(X, 24 * stay - 1000, groups=site).predict(X, groups=site)
    np.testing.assert_allclose(24 * days - 1000, hours, rtol=1e-9)


def test_what_every_site_takes_home_is_worth_more_than_one_model_for_all() -> None:
    ours = sx.ScafflixRegressor().fit(X, stay, groups=site)
    assert ours.score(X, stay, groups=site) > ours.score(X, stay)


def test_without_an_intercept_the_model_passes_through_the_origin() -> None:
    ours = sx.ScafflixRegressor(intercept=False, scale="none", alpha=1, l2=1e-9)
    rows = wards.standardized(X, intercept=False)
    ours.fit(rows, stay, groups=site)
    root = np.sqrt(wards.weights(site))
    expected = np.linalg.lstsq(root[:, None] * rows, root * stay)[0]
    np.testing.assert_allclose(ours.coef_, expected, rtol=1e-6)
    np.testing.assert_allclose(ours.predict(np.zeros((1, 3))), 0)


def test_the_record_answers_in_the_unit_of_the_target_too() -> None:
    ours = sx.ScafflixRegressor(rounds=20).fit(X, stay, groups=site)
    north = X[site == "north"]
    expected = ours.predict(north, groups=np.full(len(north), "north"))
    np.testing.assert_allclose(ours.record_.predict("north", north), expected, rtol=1e-9)


def test_a_constant_target_is_what_it_predicts() -> None:
    ours = sx.ScafflixRegressor(rounds=20).fit(X, np.full(len(X), 0.1), groups=site)
    np.testing.assert_allclose(ours.predict(X, groups=site), 0.1)


def test_classes_are_refused() -> None:
    with pytest.raises(ValueError, match="could not convert string to float"):
        sx.ScafflixRegressor().fit(X, np.where(stay > 40, "long", "short"), groups=site)
