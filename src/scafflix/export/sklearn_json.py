"""A model as readable JSON, and the scikit-learn pipeline that it describes.

Reading takes scikit-learn and pandas, and nothing of what trains.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from scafflix.core.arguments import path_of
from scafflix.core.errors import ScafflixError
from scafflix.core.extras import library
from scafflix.data.preprocessing import Preprocessing, from_dict
from scafflix.data.tabular import table_for
from scafflix.export.content import FORMAT, Layer, facts, layers, named_weights
from scafflix.export.sklearn_columns import column_encoder

if TYPE_CHECKING:
    from scafflix.prediction import Predictor


def sklearn_content(predictor: Predictor) -> bytes:
    """The bytes of the file."""
    weights = {name: array.tolist() for name, array in named_weights(predictor).items()}
    words = json.dumps({**facts(predictor), "weights": weights}, allow_nan=False, indent=1)
    return words.encode() + b"\n"


def sklearn_pipeline(path: str | Path) -> Any:
    """The fitted scikit-learn `Pipeline` of a file in the format `sklearn-json`.

    Its parts are scikit-learn's own: a `ColumnTransformer` that fills in and encodes, a
    `StandardScaler`, and a `LogisticRegression`, `LinearRegression` or `MLPClassifier`. It takes a
    pandas frame with the columns of the training table, or an array if the run had no table.
    """
    path = path_of("path", path)
    try:
        return pipeline_of(json.loads(path.read_text()))
    except OSError as error:
        raise ScafflixError(f"{path} cannot be read: {error.strerror}.") from None
    except (ValueError, KeyError, TypeError, IndexError) as error:
        raise ScafflixError(
            f"{path} does not hold a model in the format sklearn-json: {error}."
        ) from None


def pipeline_of(words: dict[str, Any]) -> Any:
    """The pipeline that a file describes."""
    from sklearn.pipeline import Pipeline

    if words["format"] != FORMAT:
        raise ValueError(f"its format is {words['format']} instead of {FORMAT}")
    made = None if words["preprocessing"] is None else from_dict(words["preprocessing"])
    weights = {name: np.array(array) for name, array in words["weights"].items()}
    found = layers(weights, made is not None and made.intercept)
    steps = []
    if made is not None:
        if made.columns:
            steps.append(("columns", column_encoder(made)))
        steps.append(("scale", _scaler(made)))
    classes = _classes(words["classes"], words["label_kind"])
    return Pipeline([*steps, ("model", _model(words["model"], found, classes))])


def sklearn_answers(content: bytes, predictor: Predictor, given: Any) -> NDArray[Any]:
    """The probabilities, or the numbers, that the pipeline finds for rows as `predictor` takes
    them."""
    made = predictor.preprocessing
    rows = given
    if made is not None and made.columns:
        library("pandas", "pandas")
        rows = table_for(made, given).arrow.to_pandas()
    pipeline = pipeline_of(json.loads(content))
    return pipeline.predict_proba(rows) if predictor.classes else pipeline.predict(rows)


def _classes(names: Sequence[str], kind: str) -> NDArray[Any]:
    types = {"text": np.str_, "integer": np.int64, "real": np.float64}
    if kind == "boolean":
        return np.array([name == "True" for name in names])
    return np.array([float(name) for name in names] if kind != "text" else names, types[kind])


def _scaler(made: Preprocessing) -> Any:
    from sklearn.preprocessing import StandardScaler

    scaler = StandardScaler()
    scaler.mean_, scaler.scale_, scaler.var_ = made.shift, made.divisor, made.divisor**2
    scaler.n_features_in_, scaler.n_samples_seen_ = len(made.shift), 1
    return scaler


def _model(name: str, found: list[Layer], classes: NDArray[Any]) -> Any:
    from sklearn.linear_model import LinearRegression, LogisticRegression

    if name.partition(":")[0] == "dense":
        return _perceptron(found, classes)
    (matrix, bias), *_ = _decisive(found) if len(classes) else found
    model = LogisticRegression() if len(classes) else LinearRegression()
    model.coef_, model.intercept_ = matrix.T, bias
    if len(classes):
        model.classes_, model.n_iter_ = classes, np.zeros(1, np.int32)
    else:
        model.coef_, model.intercept_ = matrix[:, 0], float(bias[0])
    model.n_features_in_ = len(matrix)
    return model


def _perceptron(found: list[Layer], classes: NDArray[Any]) -> Any:
    from sklearn.neural_network import MLPClassifier
    from sklearn.preprocessing import LabelBinarizer

    found = _decisive(found)
    model = MLPClassifier(hidden_layer_sizes=tuple(len(bias) for _, bias in found[:-1]))
    model.coefs_ = [matrix for matrix, _ in found]
    model.intercepts_ = [bias for _, bias in found]
    model.n_layers_, model.n_outputs_ = len(found) + 1, len(found[-1][1])
    model.n_features_in_ = len(found[0][0])
    model.out_activation_ = "softmax" if model.n_outputs_ > 1 else "logistic"
    model.classes_, model._label_binarizer = classes, LabelBinarizer().fit(classes)
    return model


def _decisive(found: list[Layer]) -> list[Layer]:
    """The same layers; of two classes scikit-learn takes the difference only."""
    *rest, (matrix, bias) = found
    if matrix.shape[1] == 2:
        matrix, bias = matrix[:, 1:] - matrix[:, :1], bias[1:] - bias[:1]
    return [*rest, (matrix, bias)]
