"""A classifier for every site."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import ClassifierMixin
from sklearn.metrics import accuracy_score
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import validate_data

from scafflix.core.arguments import choice
from scafflix.core.types import Floats
from scafflix.estimators.answers import STRANGER, predictor_of
from scafflix.estimators.base import ASKED, ROWS, SiteEstimator
from scafflix.estimators.refusals import InputError, as_value_errors
from scafflix.models import is_network

MODELS = ("auto", "logistic", "softmax", "dense")


class ScafflixClassifier(ClassifierMixin, SiteEstimator):  # type: ignore[misc]
    """A classifier for every site, from the rows of all, as an estimator of scikit-learn.

    `groups` says whose row it is: a name or a number for each. Without it in `fit`, all rows are
    one site's. In `predict`, `predict_proba`, `decision_function` and `score` a row is answered by
    the model that its site took home; a row of a site that was not in training, and every row where
    `groups` is left out, by the global model.

    Args:
        model: logistic (two classes), softmax, or dense, a network with a hidden layer of 64 units;
            auto is logistic for two classes and softmax for more.
        alpha: auto, by which each site chooses how much it takes of the global model; another rule;
            one number in [0, 1] for all sites, or a list with one for each, in the order of their
            first rows.
        l2: adds (l2/2) ||x||^2 to the loss of every site, over the intercept too.
        method: the name of a method, with options behind it, such as `ditto:pull=0.1`.
        rounds: rounds of communication.
        cohort: sites sampled per round; all, or 10 with a network, if left out.
        stepsize: a number; auto is what theory advises each site, and 0.1 with a network.
        batch: rows in a gradient; auto is all of a site's, and 20 with a network, where sites with
            fewer are left out of the training.
        scale: what is done to features before training: standard, maxabs or none, with the numbers
            of all training rows together. Sparse features become dense under standard.
        intercept: whether a linear model has one.
        validation: share of each site's rows that is held out to choose alpha by; 0, or 0.1 with a
            network, if left out.
        seed: of everything random.

    Attributes:
        classes_: the classes.
        record_: the record of the run, as `sx.run` makes it.
        n_features_in_ (int): the number of features.
        feature_names_in_ (NDArray): their names, if X was a DataFrame with names.

    >>> import numpy as np
    >>> random = np.random.default_rng(0)
    >>> X, site = random.normal(size=(60, 2)), np.repeat(["north", "south"], 30)
    >>> y = np.where((X[:, 0] > 0) == (site == "north"), "ill", "well")  # the sites disagree
    >>> model = ScafflixClassifier(rounds=20).fit(X, y, groups=site)
    >>> model.predict([[2, 0], [2, 0]], groups=["north", "south"]).tolist()
    ['ill', 'well']
    """

    classes_: NDArray[Any]
    __metadata_request__predict_proba = ASKED
    __metadata_request__decision_function = ASKED

    def __init__(
        self,
        *,
        model: str = "auto",
        alpha: Any = "auto",
        l2: float = 0.01,
        method: str = "scafflix",
        rounds: int = 100,
        cohort: int | None = None,
        stepsize: float | str = "auto",
        batch: int | str = "auto",
        scale: str = "standard",
        intercept: bool = True,
        validation: float | None = None,
        seed: int = 0,
    ) -> None:
        super().__init__(
            alpha=alpha,
            l2=l2,
            method=method,
            rounds=rounds,
            cohort=cohort,
            stepsize=stepsize,
            batch=batch,
            scale=scale,
            intercept=intercept,
            validation=validation,
            seed=seed,
        )
        self.model = model

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = self.model != "logistic"
        return tags

    @property
    def coef_(self) -> Floats:
        """The global linear model in the units of the columns, `[1 or classes, features]`."""
        matrix, _ = self._layers()[0]
        return matrix.T

    @property
    def intercept_(self) -> Floats:
        """What the global linear model adds, `[1 or classes]`."""
        _, bias = self._layers()[0]
        return bias

    @property
    def site_coef_(self) -> Floats:
        """`coef_` of the model that each site took home, `[sites, 1 or classes, features]`."""
        return np.stack([matrix.T for matrix, _ in self._layers()[1:]])

    @property
    def site_intercept_(self) -> Floats:
        """What these models add, `[sites, 1 or classes]`."""
        return np.stack([bias for _, bias in self._layers()[1:]])

    def fit(self, X: Any, y: Any, groups: ArrayLike | None = None) -> Self:
        """Train on rows X with labels y (numbers, booleans or text) of the sites in `groups`."""
        with as_value_errors():
            model = choice("model", self.model, MODELS)
        X, y = validate_data(self, X, y, **ROWS)
        check_classification_targets(y)
        self.classes_ = np.unique(y)
        if len(self.classes_) < 2:
            raise InputError(
                f"y has one class, {self.classes_[0]!s}; give rows of at least two classes."
            )
        if model == "logistic" and len(self.classes_) > 2:
            raise InputError(
                f"Only binary classification is supported by the logistic model, but y has "
                f"{len(self.classes_)} classes; use softmax, or auto."
            )
        if model == "auto":
            model = "logistic" if len(self.classes_) == 2 else "softmax"
        if is_network(model) and y.dtype.kind in "iu":
            y = y.astype(np.float64)  # else it would have a class for every whole number below
        self.record_ = self._train(X, y, groups, self._config(model))
        return self

    def decision_function(self, X: Any, groups: ArrayLike | None = None) -> Floats:
        """The predictor of every class, `[rows, classes]`; of two classes that of the second
        against the first, `[rows]`."""
        z = self._answers(X, groups)
        return z[:, 1] - z[:, 0] if z.shape[1:] == (2,) else z

    def predict_proba(self, X: Any, groups: ArrayLike | None = None) -> Floats:
        """The probability of every class, `[rows, classes]`."""
        z = self._answers(X, groups)
        return predictor_of(self.record_, STRANGER).probabilities(z)  # the same of every model

    def predict(self, X: Any, groups: ArrayLike | None = None) -> NDArray[Any]:
        """The most probable class of every row."""
        z = self._answers(X, groups)
        return self.classes_[z.argmax(axis=1) if z.ndim == 2 else (z > 0).astype(int)]

    def score(
        self, X: Any, y: Any, sample_weight: Any = None, groups: ArrayLike | None = None
    ) -> float:
        """The share of rows whose class is predicted."""
        predicted = self.predict(X, groups)
        return float(accuracy_score(y, predicted, sample_weight=sample_weight))
