"""A regression for every site."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import RegressorMixin
from sklearn.metrics import r2_score
from sklearn.utils.validation import validate_data

from scafflix.core.types import Floats
from scafflix.estimators.base import ROWS, SiteEstimator
from scafflix.record import Columns


class ScafflixRegressor(RegressorMixin, SiteEstimator):  # type: ignore[misc]
    """Least squares for every site, from the rows of all, as an estimator of scikit-learn.

    The target is standardized by all training rows before training, so that `l2` means the same in
    every unit (without an intercept it is divided, not shifted). Answers, coefficients and the
    models of the record are in the target's own unit; what the record measured is not. `groups` and
    the parameters are those of `ScafflixClassifier`.

    Attributes:
        record_: the record of the run, as `sx.run` makes it.
        n_features_in_ (int): the number of features.
        feature_names_in_ (NDArray): their names, if X was a DataFrame with names.

    >>> import numpy as np
    >>> random = np.random.default_rng(0)
    >>> X, site = random.normal(size=(60, 1)), np.repeat(["north", "south"], 30)
    >>> y = 100 + np.where(site == "north", 3, -3) * X[:, 0]
    >>> model = ScafflixRegressor(l2=1e-4, rounds=20).fit(X, y, groups=site)
    >>> model.predict([[1], [1]], groups=["north", "south"]).round(1).tolist()
    [103.0, 97.0]
    """

    @property
    def coef_(self) -> Floats:
        """The global model in the units of the columns and the target, `[features]`."""
        matrix, _ = self._layers()[0]
        return matrix[:, 0]

    @property
    def intercept_(self) -> float:
        """What the global model adds."""
        _, bias = self._layers()[0]
        return float(bias[0])

    @property
    def site_coef_(self) -> Floats:
        """`coef_` of the model that each site took home, `[sites, features]`."""
        return np.stack([matrix[:, 0] for matrix, _ in self._layers()[1:]])

    @property
    def site_intercept_(self) -> Floats:
        """What these models add, `[sites]`."""
        return np.stack([bias[0] for _, bias in self._layers()[1:]])

    def fit(self, X: Any, y: Any, groups: ArrayLike | None = None) -> Self:
        """Train on rows X with numbers y of the sites in `groups`."""
        X, y = validate_data(self, X, y, y_numeric=True, **ROWS)
        y = y.astype(np.float64)
        config = self._config("linear")
        mean = y.mean() if config.intercept else 0.0
        spread = np.sqrt(np.mean((y - mean) ** 2)) if np.ptp(y) else 1.0
        record = self._train(X, (y - mean) / spread, groups, config)
        self.record_ = replace(record, models=_in_units(record.models, mean, spread))
        return self

    def predict(self, X: Any, groups: ArrayLike | None = None) -> Floats:
        """The target of every row."""
        return self._answers(X, groups)

    def score(
        self, X: Any, y: Any, sample_weight: Any = None, groups: ArrayLike | None = None
    ) -> float:
        """R^2: 1 minus the mean squared error as a share of the target's variance."""
        return float(r2_score(y, self.predict(X, groups), sample_weight=sample_weight))


def _in_units(models: Columns, mean: float, spread: float) -> Columns:
    """Models of a standardized target for the target itself; the intercept is the last weight."""
    made = {name: spread * weights for name, weights in models.items()}
    for weights in made.values():
        weights[..., -1] += mean
    return made
