"""What every exported file holds: weights by name, and what makes answers of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from scafflix.prediction import Predictor

FORMAT = 1  # of what `facts` returns
OWN = "PyTorch module"  # a user's, of any name
WEIGHT = "weight"  # the name of the only array of a linear model

Weights = Mapping[str, NDArray[Any]]
Layer = tuple[NDArray[Any], NDArray[Any]]  # matrix [inputs, outputs], bias [outputs]


def facts(predictor: Predictor) -> dict[str, Any]:
    """Everything but the weights, as JSON can hold it."""
    made = predictor.preprocessing
    return {
        "format": FORMAT,
        "model": predictor.model,
        "classes": list(predictor.classes),
        "label_kind": predictor.label_kind,
        "preprocessing": None if made is None else made.as_dict(),
    }


def named_weights(predictor: Predictor) -> dict[str, NDArray[Any]]:
    """The arrays of the model by name."""
    found = predictor.weights
    named = found if isinstance(found, Mapping) else {WEIGHT: found}
    return {name: np.asarray(array) for name, array in named.items()}


def layers(weights: Weights, intercept: bool) -> list[Layer]:
    """A linear model as one layer, a dense network as several with rectifiers between them.

    The weight of the constant feature, which comes last, is part of the first bias.

    >>> [(matrix, bias)] = layers({"weight": np.array([2.0, 3.0])}, intercept=True)
    >>> matrix.tolist(), bias.tolist()
    ([[2.0]], [3.0])
    """
    if WEIGHT in weights:
        matrix = np.asarray(weights[WEIGHT])
        matrix = matrix[:, None] if matrix.ndim == 1 else matrix
        found = [(matrix, np.zeros(matrix.shape[1], matrix.dtype))]
    else:
        found = [
            (weights[f"layer{k}/weight"], weights[f"layer{k}/bias"])
            for k in range(len(weights) // 2)
        ]
    if intercept:
        (matrix, bias), *rest = found
        found = [(matrix[:-1], bias + matrix[-1]), *rest]
    return found


def family(predictor: Predictor) -> str:
    """Which kind of model it is: its name without options, or that it is a user's own module."""
    return OWN if predictor.own is not None else predictor.model.partition(":")[0]


def feature_names(predictor: Predictor) -> tuple[str, ...]:
    """The features before they are scaled, without the constant; numbered where no table has
    named them."""
    made = predictor.preprocessing
    if made is not None and made.columns:
        return made.names
    ((matrix, _), *_) = layers(named_weights(predictor), made is not None and made.intercept)
    return tuple(f"feature {k + 1}" for k in range(len(matrix)))
