"""Tables in memory, and tables that are prepared as others were."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from scafflix.core.errors import ScafflixError
from scafflix.data.arrays import Preparation, set_aside
from scafflix.data.arrow import read_splits
from scafflix.data.federation import Federation
from scafflix.data.loading import load, naming, share_out
from scafflix.data.origin import Origin, resolve
from scafflix.data.preprocessing import Preprocessing
from scafflix.data.scaling import scale_as
from scafflix.data.split import Column, parse_split
from scafflix.data.table import as_table
from scafflix.data.tabular import (
    columns_for,
    owned_rows,
    prepare_table,
    prepared,
    read_columns,
    table_for,
    table_options,
)


def from_table(
    table: Any,
    client: str | None = None,
    *,
    clients: int | None = None,
    split: str | None = None,
    test: float = 0.0,
    validation: float = 0.0,
    min_examples: int | None = None,
    seed: int = 0,
    label: str | None = None,
    categorical: Sequence[str] = (),
    drop: Sequence[str] = (),
    missing: str = "fill",
    missing_as: Sequence[str] = (),
    unknown: str = "other",
    intercept: bool = True,
    scale: str = "standard",
    name: str = "table",
) -> Federation:
    """The federation of a pandas frame, an Arrow table or a dictionary of columns.

    The column ``client`` says whose row it is; without it, a number of ``clients`` share the rows.
    The other arguments are those of `scafflix.data.load`.

    >>> fed = from_table({"age": [31, 45, None], "site": ["a", "b", "a"], "y": [0, 1, 1]}, "site")
    >>> fed.clients, fed.preprocessing.names
    (('a', 'b'), ('age', 'age is missing'))
    """
    wanted = Preparation(test, validation, min_examples, seed, intercept, scale).of_arrays()
    options = table_options(label, categorical, drop, missing, missing_as, unknown)
    columns, rows = read_columns(as_table(table, name), options, client)
    by = f"column:{client}" if client is not None else split
    federation = share_out(rows, Origin("table", name), clients, by, seed)
    return prepare_table(columns, federation, wanted)


def load_as(
    source: str | Path,
    made: Preprocessing,
    *,
    split: str | None = None,
    label: str | None = None,
    test: float = 0.0,
    validation: float = 0.0,
    seed: int = 0,
) -> Federation:
    """Other rows, prepared as those that ``made`` was made for.

    Without ``split``, a file is one client, named after it, and a folder has one for each file.
    """
    wanted, origin = Preparation(test, validation, seed=seed), resolve(source)
    with naming(origin):
        if not made.columns:
            alone = None if split is not None else 1
            parts: dict[str, Any] = {"test": test, "validation": validation}
            return scale_as(load(source, clients=alone, split=split, seed=seed, **parts), made)
        if origin.kind not in ("table", "huggingface"):
            raise ScafflixError(f"The run was made from a table, and {origin} is none.")
        assert origin.path is not None
        rule = None if split is None else parse_split(split)
        column = rule.name if isinstance(rule, Column) else None
        given = origin.path if origin.kind == "table" else _rows_of(origin)
        table = table_for(made, given, column)
        rows = owned_rows(table, label or made.label, column)
        if rows.clients is None and split is None:
            rows = replace(rows, clients=np.full(len(table), origin.name))
        divided = set_aside(share_out(rows, origin, None, split, seed), wanted)
        return prepared(divided, columns_for(made, table), made)


def _rows_of(origin: Origin) -> Any:
    """The rows of a data set that has no splits."""
    assert origin.path is not None
    tables = read_splits(origin.path)
    if len(tables) > 1:
        raise ScafflixError(
            f"{origin} has the parts {', '.join(tables)}; give the folder of one of them."
        )
    return tables["train"]
