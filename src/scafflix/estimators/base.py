"""What both estimators share: from rows and their sites to a record, and from it to answers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted, validate_data

from scafflix.core.errors import ScafflixError
from scafflix.core.types import Floats
from scafflix.data.admission import admit_labels
from scafflix.data.arrays import from_arrays, group
from scafflix.data.federation import Features, Federation, Labels
from scafflix.data.preprocessing import Column, Preprocessing
from scafflix.estimators.answers import STRANGER, answers, predictor_of
from scafflix.estimators.refusals import InputError, as_value_errors
from scafflix.export.coefficients import in_units_of_columns
from scafflix.export.content import Layer
from scafflix.models import is_network
from scafflix.problems.problem import Problem
from scafflix.record import Record
from scafflix.runs.assembly import build_model, resolve
from scafflix.runs.config import RunConfig, build
from scafflix.runs.runner import Runner

ROWS: dict[str, Any] = {"accept_sparse": "csr", "dtype": np.float64}  # what X may be
ASKED = {"groups": True}


class SiteEstimator(BaseEstimator):  # type: ignore[misc]
    """A model for every site, trained as `scafflix run` trains it."""

    record_: Record
    # where metadata are routed, these methods ask for groups unless told otherwise
    __metadata_request__fit = ASKED
    __metadata_request__predict = ASKED
    __metadata_request__score = ASKED

    def __init__(
        self,
        *,
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
        self.alpha = alpha
        self.l2 = l2
        self.method = method
        self.rounds = rounds
        self.cohort = cohort
        self.stepsize = stepsize
        self.batch = batch
        self.scale = scale
        self.intercept = intercept
        self.validation = validation
        self.seed = seed

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    @property
    def sites_(self) -> NDArray[np.str_]:
        """The names of the sites, in the order of their first rows."""
        return self.record_.clients["client"]

    @property
    def alpha_(self) -> Floats:
        """alpha_i of every site: 0 is its own model, 1 the global one."""
        return self.record_.clients["alpha"]

    def _train(
        self, X: Features, labels: Labels, groups: ArrayLike | None, config: RunConfig
    ) -> Record:
        """The record of a run on checked rows."""
        with as_value_errors():
            federation = from_arrays(
                X,
                labels,
                1 if groups is None else admit_labels(groups, X.shape[0], "groups"),
                validation=config.validation or 0.0,
                min_examples=config.min_examples,
                seed=config.data_seed,
                name=config.data,
                intercept=bool(config.intercept),
                scale=config.scale,
            )
            federation = named(federation, getattr(self, "feature_names_in_", ()))
            problem = Problem(federation, build_model(config.model, federation), config.l2)
            return Runner(problem).run(config)

    def _config(self, model: str) -> RunConfig:
        """The parameters as the keys of a run, checked and with defaults written out."""
        keys = {name: value for name, value in self.get_params().items() if value is not None}
        keys |= {"data": "arrays", "model": model, "data_seed": self.seed}
        if is_network(model):
            # its layers have biases
            keys |= {"intercept": False, "model_seed": self.seed, "part": "validation"}
        else:
            keys["start"] = "zeros"
        with as_value_errors():
            config: RunConfig = resolve(build(RunConfig, keys))
        return config

    def _answers(self, X: Any, groups: ArrayLike | None) -> Floats:
        """What each row's model makes of it, `[rows, *outputs]`."""
        check_is_fitted(self, "record_")
        rows: Features = validate_data(self, X, reset=False, **ROWS)
        with as_value_errors():
            places = self._places(groups, rows.shape[0])
        if (places == STRANGER).any() and not self.record_.summary["n_active"]:
            raise InputError(
                "alpha is 0 for every site, so there is no global model for rows without a known "
                "site; give groups of sites that were in training, or fit with another alpha."
            )
        return answers(self.record_, rows, places)

    def _places(self, groups: ArrayLike | None, rows: int) -> NDArray[np.int64]:
        """The place of each row's site among those of the training."""
        if groups is None:
            return np.full(rows, STRANGER)
        owners, names = group(admit_labels(groups, rows, "groups"))
        place_of = {name: place for place, name in enumerate(self.sites_.tolist())}
        return np.array([place_of.get(name, STRANGER) for name in names])[owners]

    def _layers(self) -> list[Layer]:
        """The global linear model in the units of the columns, then every site's."""
        places = (STRANGER, *range(len(self.sites_)))
        try:
            return [in_units_of_columns(predictor_of(self.record_, place)) for place in places]
        except ScafflixError as error:
            raise AttributeError(str(error)) from None


def named(federation: Federation, names: Sequence[str]) -> Federation:
    """The federation with the names of its features, if they have any."""
    if not len(names):
        return federation
    columns = tuple(Column(name, "number") for name in names)
    made = federation.preprocessing
    if made is None:
        made = Preprocessing((), np.zeros(len(names)), np.ones(len(names)))
    return replace(federation, preprocessing=replace(made, columns=columns))
