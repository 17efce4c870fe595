"""What the columns of a data set hold, as Arrow stores what `datasets` calls features."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from scafflix.core.errors import ScafflixError
from scafflix.data.admission import BYTE_LIMIT
from scafflix.data.federation import Labels
from scafflix.data.pictures import decoded
from scafflix.data.table import Table, is_text, whole_column

if TYPE_CHECKING:
    import pyarrow as pa

KindOfColumn = Literal["image", "numbers", "text", "plain"]
"""``numbers``: a list of them, perhaps nested; ``plain``: one number, boolean or date."""


def kind_of_column(table: pa.Table, name: str) -> KindOfColumn:
    """What a column holds; whether a plain one can be used, its reader says."""
    from pyarrow import types

    kind = storage(table.schema.field(name).type)
    if types.is_binary(kind) or types.is_large_binary(kind):
        return "image"
    if types.is_struct(kind) and {"bytes", "path"} == {field.name for field in kind}:
        return "image"
    if is_list(kind):
        return "numbers"
    return "text" if is_text(kind) else "plain"


def storage(kind: Any) -> Any:
    """The type in which Arrow keeps an extension's values, such as those of Array2D."""
    import pyarrow as pa

    return kind.storage_type if isinstance(kind, pa.BaseExtensionType) else kind


def is_list(kind: Any) -> bool:
    """Whether values are lists, of whatever length."""
    from pyarrow import types

    tests = (types.is_list, types.is_large_list, types.is_fixed_size_list)
    return any(test(kind) for test in tests)


def class_labels(schema: pa.Schema) -> list[str]:
    """The columns that `datasets` knows as classes."""
    try:
        noted = json.loads((schema.metadata or {}).get(b"huggingface", b"{}"))
        features = noted["info"]["features"]
        return [name for name in schema.names if features[name].get("_type") == "ClassLabel"]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return []


def numbers_of(table: Table, name: str) -> NDArray[Any]:
    """The arrays of a column, ``[rows, *shape]``: images, or lists of one shape."""
    import pyarrow as pa
    from pyarrow import compute, types

    where = f"{table.name}, column {name!r}"
    column = table.arrow.column(name)
    if column.null_count:
        row = int(np.argmax(column.is_null().to_numpy()))
        raise ScafflixError(f"{table.place(row)}: column {name!r} has a missing value.")
    if kind_of_column(table.arrow, name) == "image":
        column = compute.struct_field(column, "bytes") if types.is_struct(column.type) else column
        return decoded((one.as_py() for one in column), len(column), where)
    values = column.combine_chunks()
    values = values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values
    values = values.storage if isinstance(values, pa.ExtensionArray) else values
    shape = [len(values)]
    while is_list(values.type):
        lengths = compute.list_value_length(values)
        counts = lengths.to_numpy(zero_copy_only=False)
        if lengths.null_count or (counts != counts[0]).any():
            row = int(np.argmax(counts != counts[0])) * shape[0] // len(counts)
            raise ScafflixError(
                f"{table.place(row)}: column {name!r} has a list of another length than the rows "
                "before; give lists of one length (pad or cut them)."
            )
        shape.append(int(counts[0]))
        values = values.flatten()
    tests = (types.is_integer, types.is_floating, types.is_boolean)
    if not any(test(values.type) for test in tests):
        raise ScafflixError(f"{where}: holds lists of type {values.type}; give numbers.")
    if values.null_count:
        raise ScafflixError(f"{where}: a list has a missing value; fill it or remove the row.")
    if values.nbytes > BYTE_LIMIT:
        raise ScafflixError(f"{where}: takes more than {BYTE_LIMIT} bytes; use fewer rows.")
    found: NDArray[Any] = values.to_numpy(zero_copy_only=False).reshape(shape)
    return found


def plain_columns(table: Table, rows: NDArray[np.int64]) -> dict[str, Labels]:
    """The columns of one value a row by which rows may be divided; those with gaps are none."""
    found = {}
    for name in table.columns:
        if kind_of_column(table.arrow, name) in ("plain", "text"):
            try:
                found[name] = whole_column(table, name)[rows]
            except ScafflixError:
                continue
    return found
