"""From a table whose rows have found their clients to a federation of features."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, cast, get_args

import numpy as np

from scafflix.core.arguments import choice, shown
from scafflix.core.errors import ScafflixError
from scafflix.data.admission import check_dense_size
from scafflix.data.arrays import Preparation, set_aside
from scafflix.data.federation import Features, Federation
from scafflix.data.lookalikes import refuse_lookalikes
from scafflix.data.preprocessing import Column, Kind, Preprocessing, Unknown
from scafflix.data.rows import Rows
from scafflix.data.scaling import Scale, check_scale, map_features
from scafflix.data.summaries import KIND_WORDS, Missing, Summary, decide, summarize
from scafflix.data.table import (
    Table,
    as_table,
    find_label,
    label_values,
    open_table,
    whole_column,
)
from scafflix.data.values import Values, values_of


@dataclass(frozen=True)
class TableOptions:
    """What a user says of a table's columns."""

    label: str | None = None  # a column, or COLUMN>NUMBER
    categorical: tuple[str, ...] = ()  # columns of numbers that stand for kinds
    drop: tuple[str, ...] = ()  # columns that are no features
    missing: Missing = "fill"
    missing_as: tuple[str, ...] = ()
    unknown: Unknown = "other"


def table_options(
    label: str | None,
    categorical: Sequence[str],
    drop: Sequence[str],
    missing: str,
    missing_as: Sequence[str],
    unknown: str,
) -> TableOptions:
    """The options, checked as far as that goes without a table."""
    return TableOptions(
        label,
        _words("categorical", categorical),
        _words("drop", drop),
        cast(Missing, choice("missing", missing, get_args(Missing))),
        _words("missing_as", missing_as),
        cast(Unknown, choice("unknown", unknown, get_args(Unknown))),
    )


def first_change(options: TableOptions, besides: Sequence[str] = ()) -> str | None:
    """An option that was given, besides some, in words; None if there is none."""
    plain = asdict(TableOptions())
    for name, value in asdict(options).items():
        if value != plain[name] and name not in besides:
            return f"{name} is {shown(value if isinstance(value, str) else ', '.join(value))}"
    return None


def _words(name: str, given: Any) -> tuple[str, ...]:
    plain = not isinstance(given, str) and isinstance(given, Sequence)
    if not plain or not all(isinstance(word, str) for word in given):
        raise ScafflixError(f"{name} is {shown(given)}; give a list of words.")
    return tuple(given)


@dataclass(frozen=True, eq=False)
class Columns:
    """The features' columns of a table, before anything is done to them."""

    table: Table
    label: str
    client: str | None  # the column that says whose a row is
    found: dict[str, Values]
    options: TableOptions

    def summary(self, rows: Federation, scale: Scale) -> Summary:
        """Of the training rows; ``rows`` has their numbers in the table instead of features."""
        train = rows.train
        return summarize(self.found, _numbers(train.features), train.offsets, scale)

    def decide(self, summary: Summary, scale: Scale, intercept: bool) -> Preprocessing:
        """What is done to the columns, from what all clients tell."""
        options = self.options
        return decide(
            summary,
            scale=scale,
            intercept=intercept,
            label=self.label,
            missing=options.missing,
            missing_as=options.missing_as,
            unknown=options.unknown,
        )


def prepared(rows: Federation, found: dict[str, Values], made: Preprocessing) -> Federation:
    """The federation with the features of its rows in the place of their numbers."""
    (one, *_) = found.values()
    check_dense_size(len(one.values), made.width, one.table.name)
    features = made.features(found)
    taken = map_features(rows, lambda numbers: features[_numbers(numbers)])
    return replace(taken, preprocessing=made)


def prepare_table(columns: Columns, rows: Federation, wanted: Preparation) -> Federation:
    """Divide the rows of a table, decide from the training rows what is done to its columns, and do
    it."""
    scale, divided = check_scale(wanted.scale), set_aside(rows, wanted)
    made = columns.decide(columns.summary(divided, scale), scale, bool(wanted.intercept))
    return prepared(divided, columns.found, made)


def _numbers(features: Features) -> Any:
    assert isinstance(features, np.ndarray)
    return features[:, 0].astype(np.int64)


def read_columns(
    table: Table, options: TableOptions, client: str | None = None
) -> tuple[Columns, Rows]:
    """The columns that are features, and whose the rows are."""
    label, _ = find_label(table, options.label)
    rows = owned_rows(table, options.label, client)
    for name in (*options.categorical, *options.drop):
        table.check_column(name)
    kept = [name for name in table.columns if name not in (label, client, *options.drop)]
    if "" in kept:
        raise ScafflixError(
            f"{table.name}: column {table.columns.index('') + 1} has no name (the numbers of "
            "rows?); remove it, or give it a name in the header."
        )
    if not kept:
        raise ScafflixError(
            f"{table.name}: no column is left as a feature; the columns are {table.listed()}."
        )
    found = {
        name: values_of(table, name, options.missing_as, name in options.categorical)
        for name in kept
    }
    refuse_lookalikes(found)
    if options.missing == "refuse":
        _refuse_missing(found)
    return Columns(table, options.label or label, client, found, options), rows


def owned_rows(table: Table, label: str | None, client: str | None) -> Rows:
    """For every row its number instead of features, its label and its client: that of a column,
    or the file of a folder."""
    column, limit = find_label(table, label)
    if client is not None:
        table.check_column(client)
        if client == column:
            raise ScafflixError(
                f"{table.name}: column {client!r} is to be both label and client; choose another."
            )
    if len(table) == 0:
        raise ScafflixError(f"{table.name}: the table has no rows; give at least one.")
    clients = table.sites() if len(table.files) > 1 else None
    clients = clients if client is None else whole_column(table, client)
    numbers = np.arange(len(table), dtype=np.float64)[:, None]
    return Rows(numbers, label_values(table, column, limit), clients)


def _refuse_missing(found: dict[str, Values]) -> None:
    for name, one in found.items():
        if one.missing.any():
            row = int(np.argmax(one.missing))
            raise ScafflixError(
                f"{one.place(row)}: column {name!r} has a missing value; fill it, remove the row, "
                "or leave missing at fill."
            )


def columns_for(made: Preprocessing, given: Any) -> dict[str, Values]:
    """The columns that a model needs, checked against what they were in training.

    They are those of a table, of a file or folder, or of an array with as many columns.
    """
    table = given if isinstance(given, Table) else table_for(made, given)
    found = {}
    for column in made.columns:
        table.check_column(column.name)
        values = values_of(table, column.name, made.missing_as, column.kind == "code")
        found[column.name] = _as_trained(values, column)
    return found


def table_for(made: Preprocessing, given: Any, client: str | None = None) -> Table:
    """The table that is given, its columns read as those of the training table were."""
    if isinstance(given, str | Path):
        names = {"text": "text", "number": "number"}
        kinds = {c.name: names[c.kind] for c in made.columns if c.kind in names}
        kinds |= {} if client is None else {client: "text"}
        return open_table(Path(given), kinds, made.missing_as)
    if isinstance(given, np.ndarray):
        if given.ndim != 2 or given.shape[1] != len(made.columns):
            raise ScafflixError(
                f"The examples are an array of shape {given.shape}, but the run had a table of "
                f"{len(made.columns)} columns; give a row for each example."
            )
        given = {column.name: given[:, k] for k, column in enumerate(made.columns)}
    return as_table(given)


def _as_trained(values: Values, column: Column) -> Values:
    """The values, if their kind is that of the training rows; a boolean is also a number."""
    kind: Kind | None = values.kind
    if column.kind == "boolean" and kind == "number":
        there = ~values.missing & ~np.isin(values.values, (0, 1))
        if there.any():
            row = int(np.argmax(there))
            raise ScafflixError(
                f"{values.place(row)}: column {column.name!r} is {values.values[row]:g}, but held "
                "booleans in training; give true, false, 0 or 1."
            )
    also = {"number": ("boolean",), "boolean": ("number",)}.get(column.kind, ())
    if kind is None or kind == column.kind or kind in also:
        return values
    raise ScafflixError(
        f"{values.table.name}: column {column.name!r} holds {KIND_WORDS[kind]}, but held "
        f"{KIND_WORDS[column.kind]} in training."
    )
