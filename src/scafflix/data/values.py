"""The values of a table's column, as NumPy holds them, and which are missing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from scafflix.core.errors import ScafflixError
from scafflix.data.identity import client_name
from scafflix.data.preprocessing import Kind
from scafflix.data.table import Table, is_text

if TYPE_CHECKING:
    import pyarrow as pa

MILLISECONDS = 86_400_000.0  # of a day


@dataclass(frozen=True, eq=False)
class Values:
    """A column: numbers (of a date: days since 1970) or texts, and which are missing."""

    table: Table
    kind: Kind | None  # None where every value is missing
    values: NDArray[Any]  # [rows], float64 or text; NaN or empty where missing
    missing: NDArray[np.bool_]  # [rows]

    def place(self, row: int) -> str:
        """Where a row stands, for errors."""
        return self.table.place(row)


def values_of(table: Table, name: str, missing_as: Sequence[str], code: bool = False) -> Values:
    """The values of a column."""
    import pyarrow as pa
    from pyarrow import types

    column = table.arrow.column(name)
    if types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    kind = column.type
    if types.is_null(kind):
        nothing = np.full(len(column), np.nan)
        return Values(table, None, nothing, np.ones(len(column), bool))
    if is_text(kind):
        return _texts(table, column, missing_as, code)
    named: Kind = "number"
    if types.is_boolean(kind):
        named, column = "boolean", column.cast(pa.int8())
    elif types.is_date(kind) or types.is_timestamp(kind):
        named, column = "date", column.cast(pa.timestamp("ms"), safe=False).cast(pa.int64())
    numbers = column.cast(pa.float64(), safe=False).to_numpy()
    values: NDArray[np.float64] = np.array(numbers, np.float64)  # NaN where it is null
    if named == "date":
        values = values / MILLISECONDS
    for mark in missing_marks(named, missing_as):
        values[values == mark] = np.nan
    missing = np.isnan(values)
    if np.isinf(values).any():
        row = int(np.argmax(np.isinf(values)))
        raise ScafflixError(
            f"{table.place(row)}: column {name!r} is {values[row]}; give finite numbers."
        )
    if missing.all():
        return Values(table, None, values, missing)
    if not code:
        return Values(table, named, values, missing)
    texts = np.array([client_name(value) for value in values.tolist()], np.str_)
    texts[missing] = ""
    return Values(table, "code", texts, missing)


def _texts(table: Table, column: pa.ChunkedArray, missing_as: Sequence[str], code: bool) -> Values:
    texts = np.array(["" if one is None else one for one in column.to_pylist()], np.str_)
    missing = np.isin(texts, ["", *missing_as])
    texts[missing] = ""
    if missing.all():
        return Values(table, None, np.full(len(texts), np.nan), missing)
    return Values(table, "code" if code else "text", texts, missing)


def missing_marks(kind: Kind, words: Sequence[str]) -> list[float] | list[str]:
    """The values of a column of this kind that stand for a missing one, besides none at all.

    >>> missing_marks("number", ["?", "-9"]), missing_marks("code", ["?", "-9.0"])
    ([-9.0], ['?', '-9.0', '-9'])
    """
    numbers = [float(word) for word in words if _is_number(word)]
    if kind == "text":
        return list(words)
    codes = [client_name(number) for number in numbers]
    return list(dict.fromkeys([*words, *codes])) if kind == "code" else numbers


def _is_number(word: str) -> bool:
    try:
        return not np.isnan(float(word))
    except ValueError:
        return False
