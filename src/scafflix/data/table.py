"""CSV and Parquet tables: a label column, perhaps a client column, and features.

Numbers and booleans are features as they are. A column of text becomes one 0/1 feature for
each of its values, in sorted order. The order of the columns is kept.
"""

from __future__ import annotations

import csv
from collections import Counter
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from scafflix.core.errors import ScafflixError, reason_of
from scafflix.data.admission import TEXT_LIMIT, check_dense_size
from scafflix.data.federation import Labels
from scafflix.data.rows import Rows

if TYPE_CHECKING:
    import pyarrow as pa

LABEL_NAMES = ("label", "target", "y")
"""The names under which a label column is found when none is given."""

CATEGORY_LIMIT = 100
"""The most distinct values of a text column; more look like an identifier."""

OF_TEXT = "="
"""Between a column of text and one of its values, in the name of a feature."""

SHOWN_COLUMNS = 20
"""How many column names an error lists."""


def read_table(path: Path, *, label: str | None = None, client: str | None = None) -> Rows:
    """The rows of a ``.csv`` or ``.parquet`` file.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder, "ages.csv")
    ...     _ = path.write_text("age,colour,site,label\\n31,red,A,0\\n45,blue,B,1\\n")
    ...     rows = read_table(path, client="site")
    >>> rows.features.tolist()  # age, blue, red
    [[31.0, 0.0, 1.0], [45.0, 1.0, 0.0]]
    >>> rows.labels.tolist(), rows.clients.tolist()
    ([0, 1], ['A', 'B'])
    """
    columns = open_table(path, client)
    label = find_label(columns, label)
    if client is not None:
        check_column(columns, client)
        if client == label:
            raise ScafflixError(
                f"{path}: column {client!r} is to be both label and client; choose another."
            )
    if columns.table.num_rows == 0:
        raise ScafflixError(f"{path}: the table has no rows; give at least one.")
    kept = [name for name in columns.table.column_names if name not in (label, client)]
    blocks = [feature_block(columns, name) for name in kept]
    if not blocks:
        raise ScafflixError(
            f"{path}: no column is left as a feature; the columns are {columns.listed()}."
        )
    rows, width = columns.table.num_rows, sum(block.width for block in blocks)
    check_dense_size(rows, width, str(path))
    features = np.zeros((rows, width))
    first = 0
    for block in blocks:
        block.fill(features[:, first : first + block.width])
        first += block.width
    return Rows(
        features,
        column_values(columns, label),
        None if client is None else column_values(columns, client),
        tuple(word for name, block in zip(kept, blocks, strict=True) for word in block.named(name)),
    )


@dataclass(frozen=True, eq=False)
class Block:
    """The features that a column gives: itself, or one for each value of a text."""

    values: NDArray[Any]  # [rows], numbers, or numbers of categories
    categories: tuple[str, ...] | None = None

    @property
    def width(self) -> int:
        return 1 if self.categories is None else len(self.categories)

    def named(self, column: str) -> list[str]:
        """The features' names: the column's, or with each of its values."""
        if self.categories is None:
            return [column]
        return [f"{column}{OF_TEXT}{value}" for value in self.categories]

    def fill(self, features: NDArray[np.float64]) -> None:
        """Write into zeros ``[rows, width]``."""
        if self.categories is None:
            features[:, 0] = self.values
        else:
            features[np.arange(len(features)), self.values] = 1.0


@dataclass(frozen=True, eq=False)
class Columns:
    """A table and the file it came from, which errors name."""

    path: Path
    table: pa.Table

    def listed(self) -> str:
        """The names of the columns, in one phrase."""
        names = [repr(name) for name in self.table.column_names]
        rest = len(names) - SHOWN_COLUMNS
        return ", ".join(names[:SHOWN_COLUMNS]) + (f" and {rest} more" if rest > 0 else "")

    def place(self, row: int) -> str:
        """Where a row stands: the line of a CSV file, the row (from 1) of another."""
        if self.path.suffix.lower() != ".csv":
            return f"{self.path}, row {row + 1}"
        # Blank lines and quoted line breaks make the line differ from the row.
        with self.path.open(newline="", encoding="utf-8-sig", errors="replace") as file:
            reader = csv.reader(file)
            filled = (reader.line_num for record in reader if record)
            return f"{self.path}, line {next(islice(filled, row + 1, None), row + 2)}"


def open_table(path: Path, client: str | None) -> Columns:
    """The table as Arrow reads it."""
    if not path.is_file():
        raise ScafflixError(f"{path}: there is no such file.")
    try:
        columns = Columns(path, read_csv(path, client) if is_csv(path) else read_parquet(path))
        names = columns.table.column_names
    except ScafflixError:
        raise
    except Exception as error:  # Arrow raises many kinds, some of them only for damaged files
        kind = "CSV" if is_csv(path) else "Parquet"
        raise ScafflixError(f"{path}: not a readable {kind} table ({reason_of(error)}).") from error
    name, times = Counter(names).most_common(1)[0] if names else ("", 0)
    if times > 1:
        raise ScafflixError(f"{path}: {times} columns are named {name!r}; rename them.")
    return columns


def is_csv(path: Path) -> bool:
    """Whether the file is read as CSV."""
    return path.suffix.lower() == ".csv"


def read_csv(path: Path, client: str | None) -> pa.Table:
    """A CSV file with a header line, its clients as they are spelt."""
    # Imported here: Arrow takes a fifth of a second, and most commands read no table.
    import pyarrow as pa
    from pyarrow import csv as arrow_csv

    # One block, so that types are inferred from all rows: a column may turn from 1 to 1.5 late.
    # One thread, so that Arrow can name the row of a fault.
    block = min(max(path.stat().st_size + 1, 2**20), 2**31 - 1)
    return arrow_csv.read_csv(
        path,
        read_options=arrow_csv.ReadOptions(use_threads=False, block_size=block),
        convert_options=arrow_csv.ConvertOptions(
            # Client 007 is not client 7.
            column_types={} if client is None else {client: pa.string()},
            # An unquoted NA is missing; a quoted "NA" is a value, say a country.
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
        ),
    )


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


def find_label(columns: Columns, label: str | None) -> str:
    """The label column: the one asked for, or the one named as labels usually are."""
    if label is not None:
        check_column(columns, label)
        return label
    found = [name for name in LABEL_NAMES if name in columns.table.column_names]
    if len(found) == 1:
        return found[0]
    fault = f"both {found[0]!r} and {found[1]!r}" if found else "no column 'label', 'target' or 'y'"
    raise ScafflixError(
        f"{columns.path}: there is {fault}; choose the label column with label "
        f"among {columns.listed()}."
    )


def check_column(columns: Columns, name: str) -> None:
    """Refuse a name that is no column."""
    if name not in columns.table.column_names:
        raise ScafflixError(
            f"{columns.path}: there is no column {name!r}; the columns are {columns.listed()}."
        )


def feature_block(columns: Columns, name: str) -> Block:
    """The features that a column gives, not yet spread out."""
    values = column_values(columns, name)
    if values.dtype.kind != "U":
        return Block(values)
    categories, category_of_row = np.unique(values, return_inverse=True)
    if len(categories) > CATEGORY_LIMIT:
        raise ScafflixError(
            f"{columns.path}: text column {name!r} has {len(categories)} distinct values, more "
            f"than {CATEGORY_LIMIT} (an identifier?); remove it."
        )
    return Block(category_of_row, tuple(categories.tolist()))


def column_values(columns: Columns, name: str) -> Labels:
    """The values of a column as numbers, booleans or text, none missing, all finite."""
    import pyarrow as pa
    from pyarrow import types

    column = columns.table.column(name)
    if column.null_count > 0:
        row = int(np.argmax(column.is_null().to_numpy()))
        raise ScafflixError(
            f"{columns.place(row)}: column {name!r} has a missing value; fill it or remove the row."
        )
    check_texts(columns, name)
    if types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if types.is_decimal(column.type):
        column = column.cast(pa.float64())
    kind = column.type
    if is_text(kind):
        text: Labels = np.array(column.to_pylist(), dtype=np.str_)
        if (text == "").any():
            raise ScafflixError(
                f"{columns.place(int(np.argmax(text == '')))}: column {name!r} has an empty text; "
                "fill it or remove the row."
            )
        return text
    check_type(columns.path, name, kind)
    values: Labels = column.to_numpy()
    if values.dtype.kind == "f" and not np.isfinite(values).all():
        row = int(np.argmin(np.isfinite(values)))
        raise ScafflixError(
            f"{columns.place(row)}: column {name!r} is {values[row]}; give finite numbers."
        )
    return values


def check_type(path: Path, name: str, kind: pa.DataType) -> None:
    """Refuse dates, bytes, lists and what else is no number and no text."""
    from pyarrow import types

    plain = kind.value_type if types.is_dictionary(kind) else kind
    tests = (types.is_integer, types.is_floating, types.is_boolean, types.is_decimal, types.is_null)
    if not (is_text(plain) or any(test(plain) for test in tests)):
        raise ScafflixError(
            f"{path}: column {name!r} is of type {kind}; give numbers, booleans or text."
        )


def is_text(kind: pa.DataType) -> bool:
    """Whether Arrow calls it a string."""
    from pyarrow import types

    return bool(types.is_string(kind) or types.is_large_string(kind))


def check_texts(columns: Columns, name: str) -> None:
    """Refuse texts that are too long, before each takes the room of the longest."""
    from pyarrow import compute, types

    column = columns.table.column(name)
    kind = column.type
    chunks = column.chunks
    if types.is_dictionary(kind):
        kind, chunks = kind.value_type, [chunk.dictionary for chunk in chunks]
    if not is_text(kind):
        return
    longest = max((compute.max(compute.utf8_length(c)).as_py() or 0 for c in chunks), default=0)
    if longest > TEXT_LIMIT:
        raise ScafflixError(
            f"{columns.path}: column {name!r} has a text of {longest} letters; "
            f"give at most {TEXT_LIMIT}."
        )
    check_dense_size(len(column), longest, f"{columns.path}, texts of column {name!r}")
