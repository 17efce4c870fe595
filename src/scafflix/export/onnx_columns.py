"""The preprocessing of a table as nodes of an ONNX graph, from one input a column to features."""

from __future__ import annotations

import numpy as np

from scafflix.data.preprocessing import Column, Preprocessing
from scafflix.data.values import missing_marks
from scafflix.export.onnx_graph import Graph, rows_of_one

GIVE = {
    "number": "a number; NaN where it is missing",
    "boolean": "1 or 0; NaN where it is missing",
    "date": "days since 1970-01-01, with a fraction for the time; NaN where it is missing",
    "text": "a text; empty where it is missing",
    "code": "a code as text, whole numbers without a point; empty where it is missing",
}


def features_of(graph: Graph, made: Preprocessing) -> str:
    """The features `[rows, features]` of the columns, shifted and divided, without the constant."""
    parts = []
    for column in made.columns:
        text = column.kind in ("text", "code")
        given = graph.input("U" if text else "f", ["rows", 1], GIVE[column.kind])
        parts += (_text if text else _number)(graph, column, made, given)
    return scaled(graph, graph.add("Concat", *parts, axis=1), made)


def scaled(graph: Graph, features: str, made: Preprocessing) -> str:
    """Features as the model sees them."""
    return graph.add("Div", graph.add("Sub", features, made.shift), made.divisor)


def _number(graph: Graph, column: Column, made: Preprocessing, given: str) -> list[str]:
    lacks = graph.add("IsNaN", given)
    for mark in missing_marks(column.kind, made.missing_as):
        lacks = graph.add("Or", lacks, graph.add("Equal", given, rows_of_one(mark)))
    if column.fill is None:
        value = graph.refuse(given, lacks, _lacks(column))
    else:
        value = graph.add("Where", lacks, rows_of_one(float(column.fill)), given)
    return [value, *_flag(graph, column, lacks)]


def _text(graph: Graph, column: Column, made: Preprocessing, given: str) -> list[str]:
    lacks = graph.add("Equal", given, rows_of_one(""))
    for mark in missing_marks(column.kind, made.missing_as):
        lacks = graph.add("Or", lacks, graph.add("Equal", given, rows_of_one(mark)))
    filled = given
    if column.fill is not None:
        filled = graph.add("Where", lacks, rows_of_one(str(column.fill)), given)
    ones = graph.cast(graph.add("Equal", filled, np.array([column.categories])), "DOUBLE")
    if column.fill is None:
        ones = graph.refuse(ones, lacks, _lacks(column))
    if made.unknown == "refuse":
        known = graph.add("ReduceMax", ones, np.array([1]), keepdims=1)
        ones = graph.refuse(
            ones,
            graph.add("Sub", np.ones(1), known),
            f"column {column.name!r} has a text that no training row has",
        )
    return [ones, *_flag(graph, column, lacks)]


def _flag(graph: Graph, column: Column, lacks: str) -> list[str]:
    return [graph.cast(lacks, "DOUBLE")] if column.flagged else []


def _lacks(column: Column) -> str:
    return f"column {column.name!r} has a missing value"
