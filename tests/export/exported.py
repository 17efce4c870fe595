"""Models with everything that a table can ask of an exported file, made without training."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax
import numpy as np
import pandas as pd

from scafflix.core.vector import names_of
from scafflix.data.preprocessing import Column, Preprocessing
from scafflix.models import cnn, dense, lstm
from scafflix.prediction import Predictor

COLUMNS = (
    Column("age", "number", fill=50.0, flagged=True),
    Column("smokes", "boolean", fill=0.0),
    Column("seen", "date", fill=19000.0, flagged=True),
    Column("kind of pain", "text", ("dull", "none", "sharp"), "dull", flagged=True),
    Column("ward", "code", ("1", "10", "2"), "2"),
)
RANDOM = np.random.default_rng(3)
SHIFT = np.array([50, 0.2, 0.5, 19000, 0.1, 0.3, 0.3, 0.4, 0.1, 0.5, 0.3, 0.2])
DIVISOR = np.array([12, 0.4, 0.5, 400, 0.3, 0.4, 0.4, 0.5, 0.3, 0.5, 0.4, 0.4])
MADE = Preprocessing(COLUMNS, SHIFT, DIVISOR, intercept=True, label="ill", missing_as=("?", "-9"))
CLASSES = {
    "logistic": ("no", "yes"),
    "softmax": ("3", "4", "5"),
    "linear": (),
    "dense": ("3", "4", "5"),
}
KINDS = {"logistic": "text", "softmax": "integer", "linear": "real", "dense": "integer"}
TABLE_MODELS = tuple(CLASSES)
FRAME = pd.DataFrame(
    {
        "name": ["a", "b", "c", "d", "e", "f"],  # not asked for
        "ward": [1, 2, 10, 3, None, 1],
        "age": [30.5, None, -9, 71, 44, 90],
        "smokes": [True, False, None, True, True, False],
        "seen": pd.to_datetime(
            ["2021-03-04", None, "2022-12-31 12:30", "2020-01-01", "2023-05-06", "1999-09-09"],
            format="ISO8601",
        ),
        "kind of pain": ["dull", "sharp", None, "?", "burning", "none"],
    }
)


def flat(params: Any) -> dict[str, Any]:
    """A network's arrays by name, none of them zero."""
    return {
        f"{layer}/{name}": np.asarray(array) + np.float32(0.1) * RANDOM.normal(size=array.shape)
        .astype(np.float32)
        for layer, arrays in params.items()
        for name, array in arrays.items()
    }  # fmt: skip


def weights_of(model: str, width: int) -> Any:
    if model == "dense":
        return flat(dense(width, 3).init(jax.random.key(0)))
    return RANDOM.normal(size=(width, 3) if model == "softmax" else width)


def of_table(model: str, **changes: Any) -> Predictor:
    """A model of the table above; the changes are to its preprocessing."""
    made = replace(MADE, **changes)
    if "columns" in changes:
        made = replace(made, shift=np.zeros(len(made.names)), divisor=np.ones(len(made.names)))
    return Predictor(model, weights_of(model, made.width), CLASSES[model], KINDS[model], made)


def of_arrays(model: str, scaled: bool) -> Predictor:
    """A model of rows of four numbers."""
    made = Preprocessing((), RANDOM.normal(size=4), np.arange(1.0, 5), intercept=True)
    weights = weights_of(model, 5 if scaled else 4)
    return Predictor(model, weights, CLASSES[model], KINDS[model], made if scaled else None)


def of_images() -> Predictor:
    """The convolutional network."""
    weights = flat(cnn(4).init(jax.random.key(1)))
    return Predictor("cnn:classes=4", weights, ("0", "1", "2", "3"), "integer", None)


def of_texts() -> Predictor:
    """The LSTM, with more layers than it usually has."""
    params = lstm(symbols=7, embedding=3, units=5, layers=3).init(jax.random.key(2))
    leaves = zip(names_of(params), jax.tree.leaves(params), strict=True)
    weights = {name: np.asarray(array) + np.float32(0.1) for name, array in leaves}
    return Predictor("lstm:symbols=7,embedding=3,units=5,layers=3", weights, (), "integer", None)
