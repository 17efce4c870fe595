"""CSV files as people have them: separated by commas, semicolons or tabs, perhaps with decimal
commas, perhaps compressed; UTF-8, with a header line."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from scafflix.core.errors import ScafflixError, reason_of
from scafflix.data.decompression import open_text

if TYPE_CHECKING:
    import pyarrow as pa
    from pyarrow import csv as arrow_csv

SEPARATORS = (",", ";", "\t")  # the first where several would do
SAMPLED = 1000  # rows by which a separator is told
WITH_COMMA, WITH_POINT = re.compile(r"[-+]?\d*,\d+"), re.compile(r"[-+]?\d*\.\d+")
UTF_16 = (b"\xff\xfe", b"\xfe\xff")  # how such a file begins

NO_NUMBER = re.compile(
    r"CSV column #(?P<column>\d+): Row #(?P<row>\d+): CSV conversion error to double: "
    r"invalid value '(?P<value>.*)'"
)
"""What Arrow says of a text in a column of numbers; rows count from 1, the header included."""


class Dialect(NamedTuple):
    """How a file separates fields, and the decimals of a number."""

    separator: str = ","
    decimal: str = "."


def read_csv(path: Path, kinds: Mapping[str, str], missing_as: Sequence[str]) -> pa.Table:
    """The table; ``kinds`` are the columns whose type is known: ``text`` or ``number``."""
    # Imported here: Arrow takes a fifth of a second, and most commands read no table.
    import pyarrow as pa
    from pyarrow import csv as arrow_csv

    types = {"text": pa.string(), "number": pa.float64()}
    dialect = dialect_of(path)
    options = arrow_csv.ConvertOptions(
        column_types={name: types[kind] for name, kind in kinds.items()},
        null_values=[*arrow_csv.ConvertOptions().null_values, *missing_as],
        # An unquoted NA is missing; a quoted "NA" is a value, say a country.
        strings_can_be_null=True,
        quoted_strings_can_be_null=False,
        decimal_point=dialect.decimal,
    )
    return _read(path, dialect, options)


def read_as_written(path: Path) -> pa.Table:
    """Every field as the text that it is, so that 007 stays 007."""
    import pyarrow as pa
    from pyarrow import csv as arrow_csv

    texts = dict.fromkeys(header(path), pa.string())
    return _read(path, dialect_of(path), arrow_csv.ConvertOptions(column_types=texts))


def _read(path: Path, dialect: Dialect, options: arrow_csv.ConvertOptions) -> pa.Table:
    import pyarrow as pa
    from pyarrow import csv as arrow_csv

    source: Path | io.BytesIO = path
    size = path.stat().st_size
    if path.suffix.lower() == ".gz":
        with open_text(path) as file:
            content = file.read()
        source, size = io.BytesIO(content), len(content)
    # One block, so that types are inferred from all rows: a column may turn from 1 to 1.5 late.
    # One thread, so that Arrow can name the row of a fault.
    block = min(max(size + 1, 2**20), 2**31 - 1)
    try:
        made = arrow_csv.read_csv(
            source,
            read_options=arrow_csv.ReadOptions(use_threads=False, block_size=block),
            parse_options=arrow_csv.ParseOptions(delimiter=dialect.separator),
            convert_options=options,
        )
    except pa.ArrowException as error:
        told = NO_NUMBER.search(str(error))
        if told is None:
            raise
        name, row = header(path)[int(told["column"])], int(told["row"]) - 1
        raise ScafflixError(
            f"{path}, row {row}: column {name!r} is {told['value']!r}; give a number."
        ) from error
    for column in made.schema:
        if pa.types.is_binary(column.type):  # Arrow's word for a text that is no UTF-8
            raise _other_encoding(path, f"column {column.name!r}")
    return made


def dialect_of(path: Path) -> Dialect:
    """The separator that gives every row as many fields as the header has, and the most of them;
    and whether numbers have decimal commas."""
    with _text(path) as file:
        sample = list(islice(file, SAMPLED))
    best, found = Dialect(), 1
    for separator in SEPARATORS:
        rows = [row for row in csv.reader(sample, delimiter=separator) if row]
        if len(sample) == SAMPLED:
            rows.pop()  # a quoted line break may have cut it
        if rows and len(rows[0]) > found and all(len(row) == len(rows[0]) for row in rows):
            fields = [field for row in rows[1:] for field in row]
            comma, point = (any(map(one.fullmatch, fields)) for one in (WITH_COMMA, WITH_POINT))
            decimal = "," if separator != "," and comma and not point else "."
            best, found = Dialect(separator, decimal), len(rows[0])
    return best


def header(path: Path) -> list[str]:
    """The names of the columns."""
    with _text(path) as file:
        return next(csv.reader(file, delimiter=dialect_of(path).separator))


def line_of(path: Path, row: int) -> int:
    """The line of a row; blank lines and quoted line breaks make it differ from the row."""
    with _text(path) as file:
        reader = csv.reader(file, delimiter=dialect_of(path).separator)
        filled = (reader.line_num for record in reader if record)
        return next(islice(filled, row + 1, None), row + 2)


@contextmanager
def _text(path: Path) -> Iterator[io.TextIOWrapper]:
    with open_text(path) as file:
        if file.peek(2)[:2] in UTF_16:  # type: ignore[attr-defined]
            raise _other_encoding(path, "its text")
        yield io.TextIOWrapper(file, encoding="utf-8-sig", errors="replace", newline="")


def _other_encoding(path: Path, what: str) -> ScafflixError:
    return ScafflixError(
        f"{path}: {what} is not in UTF-8; save the file as UTF-8 (spreadsheets call it CSV UTF-8)."
    )


def not_readable(path: Path, error: Exception) -> ScafflixError:
    """The error for a file that is no CSV table."""
    if isinstance(error, UnicodeDecodeError):
        return _other_encoding(path, "its header")
    return ScafflixError(f"{path}: not a readable CSV table ({reason_of(error)}).")
