"""The splits of a data set as one table, and its rows given to clients."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scafflix.core.errors import ScafflixError
from scafflix.data.arrays import Preparation, group, pack
from scafflix.data.arrow import Tables
from scafflix.data.columns import plain_columns
from scafflix.data.federation import Examples, Features, Federation, Labels
from scafflix.data.loading import how_many_clients
from scafflix.data.origin import Origin
from scafflix.data.partitioners import NOBODY, Division, divided
from scafflix.data.rows import Rows
from scafflix.data.split import Contiguous, divide, follow
from scafflix.data.streams import Stream, generator
from scafflix.data.table import Table, whole_column

HELD_OUT = ("test", "validation")


@dataclass(frozen=True, eq=False)
class Whole:
    """All splits as one table, and which of its rows are in which part."""

    table: Table
    parts: dict[str, NDArray[np.int64]]


def joined(tables: Tables, where: str) -> Whole:
    """Refuse splits that have other columns."""
    import pyarrow as pa

    tables = {part: tables[part] for part in ("train", *HELD_OUT) if part in tables}
    columns = tables["train"].column_names
    for part, table in tables.items():
        if table.schema.types != tables["train"].schema.types or table.column_names != columns:
            raise ScafflixError(
                f"{where}: the columns of {part} are not those of train; give all splits the same."
            )
    ends = np.cumsum([0, *(table.num_rows for table in tables.values())])
    parts = {
        part: np.arange(first, last)
        for part, first, last in zip(tables, ends[:-1], ends[1:], strict=True)
    }
    if not tables["train"].num_rows:
        raise ScafflixError(f"{where}: there are no training rows; give at least one.")
    return Whole(Table(where, pa.concat_tables(tables.values())), parts)


def numbered_rows(labels: Labels) -> Rows:
    """Rows that have their number for features."""
    return Rows(np.arange(len(labels), dtype=np.float64)[:, None], labels)


def row_numbers(features: Features) -> NDArray[np.int64]:
    """Which rows these are."""
    assert isinstance(features, np.ndarray)
    return features[:, 0].astype(np.int64)


def shared(
    whole: Whole,
    rows: Rows,
    origin: Origin,
    rule: Any,
    column: str | None,
    wanted: Preparation,
    clients: int | None,
    partitioner: Any,
) -> Federation:
    """Every row given to its client; its features are its number in the table."""
    train, labels = whole.parts["train"], rows.labels
    held_out = {part: whole.parts[part] for part in HELD_OUT if part in whole.parts}
    if column is not None:
        owners, names = group(whole_column(whole.table, column), f"column {column!r}")
        if clients is not None and clients != len(names):
            raise ScafflixError(
                f"clients is {clients}, but column {column!r} of {origin} names {len(names)}; "
                "leave clients out."
            )
        division = Division(owners[train], names)
        others = {part: owners[numbers] for part, numbers in held_out.items()}
    else:
        scalar = plain_columns(whole.table, train)
        if partitioner is not None:
            division = divided(partitioner, {"label": labels[train], **scalar}, len(train))
        elif rule is None and clients is None:
            raise how_many_clients(origin)
        else:
            asked = Contiguous() if rule is None else rule
            division = divide(asked, labels[train], clients, wanted.seed, scalar)
        random = generator(wanted.seed, Stream.HELD_OUT)
        others = {
            part: _follow(division, labels, train, numbers, random)
            for part, numbers in held_out.items()
        }
    made = pack(origin.name, rows.features[train], labels[train], division)
    place = np.full(len(division.clients), NOBODY)
    place[[division.clients.index(client) for client in made.clients]] = np.arange(
        len(made.clients)
    )
    parts = {
        part: _held_out(rows, held_out[part], place[who], len(made.clients))
        for part, who in others.items()
    }
    return replace(made, **parts)  # type: ignore[arg-type]


def _follow(
    division: Division,
    labels: Labels,
    train: NDArray[np.int64],
    numbers: NDArray[np.int64],
    random: np.random.Generator,
) -> NDArray[np.int64]:
    if labels.ndim > 1:  # sequences of labels: by the sizes of the clients
        labels = np.zeros(len(labels), np.int8)
    return follow(division, labels[train], labels[numbers], random)


def _held_out(
    rows: Rows, numbers: NDArray[np.int64], owners: NDArray[np.int64], clients: int
) -> Examples:
    """The held-out rows of the clients that there are."""
    order = np.argsort(owners, kind="stable")[np.count_nonzero(owners == NOBODY) :]
    counts = np.bincount(owners[order], minlength=clients)
    offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    chosen = numbers[order]
    return Examples(rows.features[chosen], rows.labels[chosen], offsets)
