"""CSV and Parquet tables: a label column, perhaps a client column, and features.

A folder of such files is one table, in which every file is a client, named as the file is.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np

from scafflix.core.errors import ScafflixError, reason_of
from scafflix.data.admission import TEXT_LIMIT, check_dense_size
from scafflix.data.csv_file import line_of, not_readable, read_as_written, read_csv
from scafflix.data.federation import Labels
from scafflix.data.recognition import is_csv, stem, tables_in

if TYPE_CHECKING:
    import pyarrow as pa

LABEL_NAMES = ("label", "target", "y")
"""The names under which a label column is found when none is given."""

SHOWN_COLUMNS = 20
"""How many column names an error lists."""

ABOVE = re.compile(r"(?P<column>.+?)\s*>\s*(?P<limit>[-+.\deE]+)")
"""A label that says whether a number is above a limit, as in ``stage>0``."""


@dataclass(frozen=True, eq=False)
class Table:
    """A table and where it came from, which errors name."""

    name: str
    arrow: pa.Table
    files: tuple[tuple[Path, int], ...] = ()  # in order, with their numbers of rows

    def __len__(self) -> int:
        return int(self.arrow.num_rows)

    @property
    def columns(self) -> list[str]:
        return list(self.arrow.column_names)

    def listed(self) -> str:
        """The names of the columns, in one phrase."""
        rest = len(self.columns) - SHOWN_COLUMNS
        shown = ", ".join(map(repr, self.columns[:SHOWN_COLUMNS]))
        return shown + (f" and {rest} more" if rest > 0 else "")

    def place(self, row: int) -> str:
        """Where a row stands: the line of a CSV file, the row (from 1) of anything else."""
        for path, rows in self.files:
            if row < rows:
                return f"{path}, line {line_of(path, row)}" if is_csv(path) else _row(path, row)
            row -= rows
        return _row(self.name, row)

    def check_column(self, name: str) -> None:
        """Refuse a name that is no column."""
        if name not in self.columns:
            raise ScafflixError(
                f"{self.name}: there is no column {name!r}; the columns are {self.listed()}."
            )

    def sites(self) -> Labels:
        """The file of each row."""
        stems = [stem(path) for path, _ in self.files]
        return np.repeat(np.array(stems, np.str_), [rows for _, rows in self.files])


def _row(name: str | Path, row: int) -> str:
    return f"{name}, row {row + 1}"


def open_table(
    path: Path, kinds: Mapping[str, str] | None = None, missing_as: Sequence[str] = ()
) -> Table:
    """The table of a file or folder. ``kinds`` are the columns of CSV files whose type is known:
    ``text`` or ``number``."""
    files = tables_in(path) if path.is_dir() else [path]
    made = [_read(file, kinds or {}, missing_as) for file in files]
    sizes = tuple((file, int(one.num_rows)) for file, one in zip(files, made, strict=True))
    return Table(str(path), made[0] if len(made) == 1 else _joined(files, made), sizes)


def as_written(path: Path) -> pa.Table:
    """The columns of a file as they stand there, to be written again."""
    return read_as_written(path) if is_csv(path) else open_table(path).arrow


def as_table(given: Any, where: str = "the table") -> Table:
    """The table that a pandas frame, an Arrow table or a dictionary of columns is."""
    import pyarrow as pa

    try:
        if not isinstance(given, pa.Table | Mapping):
            made = pa.Table.from_pandas(given, preserve_index=False)
        else:
            made = given if isinstance(given, pa.Table) else pa.table(dict(given))
    except Exception as error:  # whatever Arrow says of an object of another library
        raise ScafflixError(
            f"{where} is a {type(given).__name__} that Arrow cannot read ({reason_of(error)}); "
            "give a pandas frame, an Arrow table or a dictionary of columns."
        ) from None
    for column in made.schema:
        check_type(where, column.name, column.type)
    _check_names(where, made.column_names)
    return Table(where, made)


def _joined(files: list[Path], made: list[pa.Table]) -> pa.Table:
    """The rows of all files, each column in a type that holds what every file has there."""
    import pyarrow as pa

    for file, one in zip(files, made, strict=True):
        if set(one.column_names) != set(made[0].column_names):
            (odd, *_) = sorted(set(one.column_names) ^ set(made[0].column_names))
            has, lacks = (file, files[0]) if odd in one.column_names else (files[0], file)
            raise ScafflixError(f"{lacks}: there is no column {odd!r}, which {has} has.")
    try:
        return pa.concat_tables(
            [one.select(made[0].column_names) for one in made], promote_options="permissive"
        )
    except pa.ArrowException as error:
        raise _unlike(files, made) or ScafflixError(
            f"{files[0].parent}: a column is of one type in one file and of another in the next "
            f"({reason_of(error)}); make them alike."
        ) from None


def _unlike(files: list[Path], made: list[pa.Table]) -> ScafflixError | None:
    """The error for a column that is text in one file and something else in another."""
    for name in made[0].column_names:
        texts = [file for file, one in zip(files, made, strict=True) if _holds_text(one, name)]
        others = [
            file
            for file, one in zip(files, made, strict=True)
            if file not in texts and one.column(name).null_count < one.num_rows
        ]
        if texts and others:
            word = _no_number(made[files.index(texts[0])].column(name))
            return ScafflixError(
                f"{texts[0]}: column {name!r} holds text, such as {word!r}, but no text in "
                f"{others[0]}; if that means missing, name it under missing_as, else make the "
                "files alike."
            )
    return None


def _holds_text(table: pa.Table, name: str) -> bool:
    kind = table.schema.field(name).type
    return is_text(kind.value_type if hasattr(kind, "value_type") else kind)


def _no_number(column: pa.ChunkedArray) -> str:
    """A text of the column, if there is one, that is no number."""
    texts = [str(text) for text in column.unique().to_pylist() if text is not None]
    return next((text for text in texts if not re.fullmatch(r"[-+.\deE]+", text)), texts[0])


def _read(path: Path, kinds: Mapping[str, str], missing_as: Sequence[str]) -> pa.Table:
    if not path.is_file():
        raise ScafflixError(f"{path}: there is no such file.")
    try:
        made = read_csv(path, kinds, missing_as) if is_csv(path) else read_parquet(path)
        names = made.column_names
    except ScafflixError:
        raise
    except Exception as error:  # Arrow raises many kinds, some of them only for damaged files
        if is_csv(path):
            raise not_readable(path, error) from error
        raise ScafflixError(
            f"{path}: not a readable Parquet table ({reason_of(error)})."
        ) from error
    _check_names(path, names)
    for column in made.schema:
        check_type(path, column.name, column.type)
        check_texts(path, column.name, made.column(column.name))
    return made


def _check_names(where: str | Path, names: list[str]) -> None:
    name, times = Counter(names).most_common(1)[0] if names else ("", 0)
    if times > 1:
        raise ScafflixError(f"{where}: {times} columns are named {name!r}; rename them.")


def read_parquet(path: Path) -> pa.Table:
    """A Parquet file; unlike `read_table` of Arrow, this adds no columns from folder names.

    A few bytes can stand for a billion equal values, so sizes are checked before reading, and
    texts stay numbered until their lengths are known.
    """
    from pyarrow.parquet import ParquetFile

    with ParquetFile(path) as file:
        schema = file.schema_arrow
        for column in schema:
            check_type(path, column.name, column.type)
        check_dense_size(file.metadata.num_rows, len(schema), str(path))
        texts = [column.name for column in schema if is_text(column.type)]
    with ParquetFile(path, read_dictionary=texts) as file:
        return file.read()


def write_table(table: pa.Table, file: IO[bytes], format: str) -> None:
    """Write a table as csv or parquet."""
    from pyarrow import csv as arrow_csv
    from pyarrow import parquet

    if format == "csv":
        arrow_csv.write_csv(table, file, arrow_csv.WriteOptions(quoting_style="needed"))
    else:
        parquet.write_table(table, file)


def find_label(table: Table, label: str | None) -> tuple[str, float | None]:
    """The label column, and the limit above which it counts where the label is ``COLUMN>LIMIT``;
    without a label, the column that is named as labels usually are."""
    if label is not None:
        asked = ABOVE.fullmatch(label)
        if label in table.columns or asked is None or asked["column"] not in table.columns:
            table.check_column(label)
            return label, None
        return asked["column"], _limit(asked["limit"], label)
    found = [name for name in LABEL_NAMES if name in table.columns]
    if len(found) == 1:
        return found[0], None
    fault = f"both {found[0]!r} and {found[1]!r}" if found else "no column 'label', 'target' or 'y'"
    raise ScafflixError(
        f"{table.name}: there is {fault}; choose the label column with label "
        f"among {table.listed()}."
    )


def _limit(word: str, label: str) -> float:
    try:
        return float(word)
    except ValueError:
        raise ScafflixError(f"label is {label!r}; give a column, or COLUMN>NUMBER.") from None


def label_values(table: Table, column: str, limit: float | None) -> Labels:
    """The label of every row; with a limit, two classes named after it."""
    found = whole_column(table, column)
    if limit is None:
        return found
    if found.dtype.kind not in "iuf":
        raise ScafflixError(
            f"{table.name}: label is {column}>{limit:g}, but column {column!r} holds no numbers; "
            "choose a column of numbers."
        )
    return np.where(found.astype(np.float64) > limit, f"{column}>{limit:g}", f"{column}<={limit:g}")


def whole_column(table: Table, name: str) -> Labels:
    """The values of a column as numbers, booleans or text, none missing, all finite."""
    import pyarrow as pa
    from pyarrow import types

    column = table.arrow.column(name)
    if column.null_count > 0:
        row = int(np.argmax(column.is_null().to_numpy()))
        raise ScafflixError(
            f"{table.place(row)}: column {name!r} has a missing value; fill it or remove the row."
        )
    if types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if types.is_decimal(column.type):
        column = column.cast(pa.float64())
    if is_text(column.type):
        text: Labels = np.array(column.to_pylist(), dtype=np.str_)
        if (text == "").any():
            raise ScafflixError(
                f"{table.place(int(np.argmax(text == '')))}: column {name!r} has an empty text; "
                "fill it or remove the row."
            )
        return text
    if types.is_temporal(column.type):
        raise ScafflixError(
            f"{table.name}: column {name!r} holds dates; give numbers, booleans or text."
        )
    values: Labels = column.to_numpy()
    if values.dtype.kind == "f" and not np.isfinite(values).all():
        row = int(np.argmin(np.isfinite(values)))
        raise ScafflixError(
            f"{table.place(row)}: column {name!r} is {values[row]}; give finite numbers."
        )
    return values


def check_type(where: str | Path, name: str, kind: pa.DataType) -> None:
    """Refuse bytes, lists and what else is no number, no date and no text."""
    from pyarrow import types

    plain = kind.value_type if types.is_dictionary(kind) else kind
    tests = (
        types.is_integer,
        types.is_floating,
        types.is_boolean,
        types.is_decimal,
        types.is_null,
        types.is_date,
        types.is_timestamp,
    )
    if not (is_text(plain) or any(test(plain) for test in tests)):
        raise ScafflixError(
            f"{where}: column {name!r} is of type {kind}; give numbers, booleans, dates or text."
        )


def is_text(kind: pa.DataType) -> bool:
    """Whether Arrow calls it a string."""
    from pyarrow import types

    return bool(types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind))


def check_texts(where: str | Path, name: str, column: pa.ChunkedArray) -> None:
    """Refuse texts that are too long, before each takes the room of the longest."""
    from pyarrow import compute, types

    kind, chunks = column.type, column.chunks
    if types.is_dictionary(kind):
        kind, chunks = kind.value_type, [chunk.dictionary for chunk in chunks]
    if not is_text(kind):
        return
    longest = max((compute.max(compute.utf8_length(c)).as_py() or 0 for c in chunks), default=0)
    if longest > TEXT_LIMIT:
        raise ScafflixError(
            f"{where}: column {name!r} has a text of {longest} letters; give at most {TEXT_LIMIT}."
        )
    check_dense_size(len(column), longest, f"{where}, texts of column {name!r}")
