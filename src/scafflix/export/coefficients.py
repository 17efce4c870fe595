"""The weights of a linear model in the units of the table's columns."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

import numpy as np

from scafflix.core.errors import ScafflixError
from scafflix.data.preprocessing import INTERCEPT, LACKED, Column
from scafflix.data.table import write_table
from scafflix.export.content import Layer, feature_names, layers, named_weights
from scafflix.models import MODELS

if TYPE_CHECKING:
    import pyarrow as pa

    from scafflix.prediction import Predictor

NAMES = ("column", "value", "if missing")  # of the columns that say what a coefficient is for
UNITS = {"date": "per day", "boolean": "true"}


def coefficients(predictor: Predictor) -> pa.Table:
    """A row for the intercept, for each column of numbers and for each value of a text.

    The model sees (x - shift) / divisor; the table is for x itself. The sum of the intercept and of
    coefficient times number (times 1 for the text that a row has) is the answer of a linear model,
    the log-odds of the second class for a logistic one, and for softmax what the probabilities of
    classes are proportional to the exponential of.
    """
    import pyarrow as pa

    matrix, bias = in_units_of_columns(predictor)
    words = [(INTERCEPT, "", ""), *_words(predictor)]
    table: dict[str, Any] = dict(zip(NAMES, zip(*words, strict=True), strict=True))
    values = np.vstack([bias, matrix])
    classes = predictor.classes[1:] if predictor.model == "logistic" else predictor.classes
    for k in range(values.shape[1]):
        table[f"coefficient of {classes[k]}" if classes else "coefficient"] = values[:, k]
    if predictor.model == "logistic":
        with np.errstate(over="ignore"):
            table[f"odds ratio of {classes[0]}"] = [None, *np.exp(values[1:, 0]).tolist()]
    return pa.table(table)


def in_units_of_columns(predictor: Predictor) -> Layer:
    """A linear model for columns that are neither scaled nor followed by a constant."""
    if predictor.model not in MODELS:
        raise ScafflixError(f"The model {predictor.model} is not linear: it has no coefficients.")
    made = predictor.preprocessing
    ((matrix, bias),) = layers(named_weights(predictor), made is not None and made.intercept)
    if made is not None:
        matrix = matrix / made.divisor[:, None]
        bias = bias - made.shift @ matrix
    return matrix, bias


def table_content(predictor: Predictor) -> bytes:
    """The table as the bytes of a CSV file."""
    file = io.BytesIO()
    write_table(coefficients(predictor), file, "csv")
    return file.getvalue()


def _words(predictor: Predictor) -> list[tuple[str, str, str]]:
    """For every feature its column, the value that it is for, and what stands for a missing one."""
    made = predictor.preprocessing
    if made is None or not made.columns:
        return [(name, "", "") for name in feature_names(predictor)]
    return [words for column in made.columns for words in _of_column(column)]


def _of_column(column: Column) -> list[tuple[str, str, str]]:
    fill = "" if column.fill is None else _shown(column.fill)
    values = column.categories or (UNITS.get(column.kind, ""),)
    rows = [(column.name, value, fill) for value in values]
    return [*rows, (f"{column.name}{LACKED}", "", "")] if column.flagged else rows


def _shown(fill: float | str) -> str:
    return fill if isinstance(fill, str) else repr(float(fill)).removesuffix(".0")
