"""Rows that nobody measured, of the kinds that a model takes, to try an exported file with."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.random import Generator

from scafflix.data.preprocessing import Column, Preprocessing
from scafflix.data.text import LENGTH
from scafflix.data.values import MILLISECONDS
from scafflix.export.content import family, feature_names, named_weights

if TYPE_CHECKING:
    import pyarrow as pa

    from scafflix.prediction import Predictor

ROWS = 40
LACKING = 0.2  # of the values, where that is not refused


def made_up_rows(predictor: Predictor) -> Any:
    """A table, or an array of examples."""
    made, random = predictor.preprocessing, np.random.default_rng(0)
    if made is not None and made.columns:
        return made_up_table(made)
    if predictor.own is not None:
        from scafflix.problems.restoring import made_up_inputs

        drawn = made_up_inputs(predictor.own.about["inputs"], 4)
        return drawn if made is None else made.shift + made.divisor * drawn[:, : len(made.shift)]
    if family(predictor) == "lstm":
        symbols = len(named_weights(predictor)["embedding"])
        return random.integers(0, symbols, (4, LENGTH), np.uint8)
    if family(predictor) == "cnn":
        from scafflix.models.cnn import SIDE  # who reads a table back does without JAX

        return random.integers(0, 256, (4, SIDE, SIDE), np.uint8)
    drawn = random.normal(size=(ROWS, len(feature_names(predictor))))
    return drawn if made is None else made.shift + made.divisor * drawn


def made_up_table(made: Preprocessing) -> pa.Table:
    """Numbers around the usual ones, all kinds of texts, and what is missing or unknown where the
    model takes it."""
    import pyarrow as pa

    random = np.random.default_rng(0)
    columns, place = {}, 0
    for column in made.columns:
        usual = made.shift[place] + made.divisor[place] * random.normal(size=ROWS)
        values = _values(column, usual, made.unknown == "other", random)
        lacks = (random.random(ROWS) < LACKING) & (column.fill is not None)
        columns[column.name] = pa.array(values, mask=lacks)
        place += len(column.names)
    return pa.table(columns)


def _values(column: Column, usual: Any, unknown: bool, random: Generator) -> Any:
    if column.kind in ("text", "code"):
        other = [f"not {column.categories[-1]}"] if unknown else []
        return random.choice(np.array([*column.categories, *other], object), ROWS)
    if column.kind == "boolean":
        return random.random(ROWS) < 0.5
    if column.kind == "date":
        return (usual * MILLISECONDS).astype("datetime64[ms]")
    return usual
