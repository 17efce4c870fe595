"""Data sets of Hugging Face's `datasets`, in memory or on the disk.

What the columns are decides what an example is. After the label, the clients' column and those to
drop, there may be left

- one column of images: uint8 pixels, ``[height, width]`` or ``[height, width, 3]``;
- one column of lists of numbers, of one shape: an array of that shape and type;
- one column of text: with a label, its words hashed into a sparse vector
  (`scafflix.data.words`); without one, sequences of characters to be continued
  (`scafflix.data.text`);
- else columns of numbers, booleans, dates and text: a table (`scafflix.data.preprocessing`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from scafflix.core.arguments import instance, shown
from scafflix.core.errors import ScafflixError
from scafflix.core.extras import library
from scafflix.data.arrays import Preparation, prepare, set_aside
from scafflix.data.arrow import Tables, by_part
from scafflix.data.columns import class_labels, kind_of_column, numbers_of
from scafflix.data.federation import Examples, Federation, Labels
from scafflix.data.loading import naming
from scafflix.data.origin import Origin
from scafflix.data.partitioners import Flower, check_partitioner, names_clients
from scafflix.data.scaling import map_features
from scafflix.data.split import Column, parse_split
from scafflix.data.splits import HELD_OUT, Whole, joined, numbered_rows, row_numbers, shared
from scafflix.data.table import LABEL_NAMES, Table, find_label, label_values
from scafflix.data.tabular import (
    TableOptions,
    first_change,
    prepare_table,
    read_columns,
    table_options,
)
from scafflix.data.text import sequences
from scafflix.data.threshold import NO_TRAINING_ROWS
from scafflix.data.words import hashed

if TYPE_CHECKING:
    import pyarrow as pa


def from_huggingface(
    dataset: Any,
    by: Any = None,
    *,
    clients: int | None = None,
    split: str | None = None,
    test: float = 0.0,
    validation: float = 0.0,
    min_examples: int | None = None,
    seed: int = 0,
    label: str | None = None,
    drop: Sequence[str] = (),
    categorical: Sequence[str] = (),
    missing: str = "fill",
    missing_as: Sequence[str] = (),
    unknown: str = "other",
    intercept: bool | None = None,
    scale: str = "auto",
    name: str = "huggingface",
) -> Federation:
    """The federation of a `datasets.Dataset`, or of a `DatasetDict` with the splits train and maybe
    test and validation, which become those parts.

    ``by`` is the column that says whose row it is, or a partitioner of flwr-datasets; without it a
    number of ``clients`` share the rows as ``split`` says. Held-out rows whose client a column
    names go to it; with any other division a client gets such a share of the held-out rows of each
    label as it has of the training rows. The label is the column ``label``, or else the only
    ClassLabel, or one that is called label, target or y. The other arguments are those of
    `scafflix.data.load`.
    """
    wanted = Preparation(test, validation, min_examples, seed, intercept, scale)
    instance("name", name, str, "text")
    if by is not None and (clients is not None or split is not None):
        raise ScafflixError("by says whose rows are whose; leave clients and split out.")
    if by is not None and not isinstance(by, str):
        check_partitioner(by)
    options = table_options(label, categorical, drop, missing, missing_as, unknown)
    origin = Origin("huggingface", name)
    rule = f"column:{by}" if isinstance(by, str) else split
    partitioner = None if isinstance(by, str) else by
    with naming(origin):
        tables = _tables(dataset, name)
        return federation_of(tables, origin, options, wanted, clients, rule, partitioner)


def _tables(dataset: Any, name: str) -> Tables:
    """The Arrow tables of what a user gives."""
    if isinstance(dataset, dict):  # as a DatasetDict is
        return by_part({split: _table(one) for split, one in dataset.items()}, name)
    return {"train": _table(dataset)}


def _table(dataset: Any) -> pa.Table:
    import pyarrow as pa

    try:
        made = dataset.with_format("arrow")[:]
    except (AttributeError, TypeError):
        made = None
    if not isinstance(made, pa.Table):
        raise ScafflixError(
            f"The data set is {shown(dataset)}; give a datasets.Dataset or a DatasetDict (a "
            "streaming one has to be taken into memory first)."
        )
    if any(kind_of_column(made, column) == "image" for column in made.column_names):
        # images that are only paths get their bytes, as in save_to_disk
        made = library("datasets.table", "huggingface").embed_table_storage(made)
    return made


def federation_of(
    tables: Tables,
    origin: Origin,
    options: TableOptions,
    wanted: Preparation,
    clients: int | None,
    split: str | None,
    partitioner: Any = None,
) -> Federation:
    """Find what the columns are, give the rows to clients, prepare them."""
    whole = joined(tables, str(origin))
    for part in HELD_OUT:
        share = getattr(wanted, part)
        if share and part in whole.parts:
            raise ScafflixError(
                f"{part} is {share:g}, but {origin} brings a {part} part; leave {part} out."
            )
    table, rule = whole.table, None if split is None else parse_split(split)
    column = rule.name if isinstance(rule, Column) else None
    for name in (*options.drop, *options.categorical, *([] if column is None else [column])):
        table.check_column(name)
    by = _goes_by(partitioner, rule)
    used = {column, by, *options.drop}  # for something else
    label = _label(table, options.label, used)
    if label is None and not names_clients(rule if partitioner is None else partitioner):
        label = _label(table, None, used - {by})  # it may go by the label
    kept = [c for c in table.columns if c not in (label, *used)]
    if label is None and [kind_of_column(table.arrow, name) for name in kept] != ["text"]:
        found, _ = find_label(table, None)  # or says what is missing
        raise ScafflixError(
            f"{table.name}: the column {found!r} says whose row it is or is dropped, and there is "
            "no other label; choose the label column with label."
        )
    alone = _alone(table, kept, options)
    if alone is None:
        dropped = tuple(c for c in table.columns if c not in (label, column, *kept))
        options = replace(options, label=options.label or label, drop=dropped)
        columns, rows = read_columns(table, options, column)
    elif label is not None:
        if (change := first_change(options, ("label", "drop"))) is not None:
            raise ScafflixError(f"{change}, but {origin} is not a table; leave it out.")
        _, limit = find_label(table, options.label or label)
        rows = numbered_rows(_labels(table, label, limit))
    else:
        return _texts(whole, kept[0], origin, rule, column, wanted, clients, partitioner)
    federation = shared(whole, rows, origin, rule, column, wanted, clients, partitioner)
    if alone is None:
        return prepare_table(columns, federation, wanted.settled(table=True))
    features = _features(table, kept[0], alone)
    prepared = wanted.settled(table=False)
    divided = set_aside(federation, prepared)
    made = map_features(divided, lambda numbers: features[row_numbers(numbers)])
    return prepare(made, replace(prepared, test=0.0, validation=0.0, min_examples=None))


def _goes_by(partitioner: Any, rule: Any) -> str | None:
    """The column by which a partitioner divides, which is then no feature."""
    by = rule.options.get("partition_by") if isinstance(rule, Flower) else None
    return by if partitioner is None else getattr(partitioner, "_partition_by", None)


def _label(table: Table, asked: str | None, others: set[str | None]) -> str | None:
    """The label column, or None where there is none."""
    if asked is not None:
        return find_label(table, asked)[0]
    classes = [name for name in class_labels(table.arrow.schema) if name not in others]
    if len(classes) == 1:
        return classes[0]
    found = [name for name in LABEL_NAMES if name in table.columns and name not in others]
    if len(found) == 1:
        return found[0]
    if len(classes) > 1:
        raise ScafflixError(
            f"{table.name}: there are several columns of classes, {', '.join(map(repr, classes))}; "
            "choose the label column with label, and drop the others."
        )
    return None


def _labels(table: Table, label: str, limit: float | None) -> Labels:
    """The label of every row: one value, or a sequence of whole numbers."""
    if kind_of_column(table.arrow, label) == "numbers":
        return numbers_of(table, label)
    found: NDArray[Any] = label_values(table, label, limit)
    if label in class_labels(table.arrow.schema) and limit is None and (found < 0).any():
        row = int(np.argmax(found < 0))
        raise ScafflixError(f"{table.place(row)}: has no label; leave out the rows without one.")
    return found


def _alone(table: Table, kept: list[str], options: TableOptions) -> str | None:
    """What the only column of the examples is, or None where they are rows of a table."""
    kinds = {name: kind_of_column(table.arrow, name) for name in kept}
    arrays = [name for name, kind in kinds.items() if kind in ("image", "numbers")]
    if arrays and len(kept) > 1:
        others = [name for name in kept if name != arrays[0]]
        raise ScafflixError(
            f"{table.name}: the column {arrays[0]!r} holds whole examples, but there "
            f"{'is' if len(others) == 1 else 'are'} also {', '.join(map(repr, others))}; leave out "
            f"what is no example: drop {','.join(others)}."
        )
    if len(kept) == 1 and kinds[kept[0]] != "plain" and kept[0] not in options.categorical:
        return kinds[kept[0]]
    return None


def _features(table: Table, column: str, kind: str) -> Any:
    """The examples of all rows."""
    if kind == "text":
        return hashed(table.arrow.column(column).to_pylist(), f"{table.name}, column {column!r}")
    return numbers_of(table, column)


def _texts(
    whole: Whole,
    column: str,
    origin: Origin,
    rule: Any,
    by: str | None,
    wanted: Preparation,
    clients: int | None,
    partitioner: Any,
) -> Federation:
    """Texts without labels: each is cut into sequences of characters to be continued."""
    texts = whole.table.arrow.column(column).to_pylist()
    made = [sequences([text] if text else []) for text in texts]
    nothing = numbered_rows(np.zeros(len(texts), np.int8))
    given = shared(whole, nothing, origin, rule, by, wanted, clients, partitioner)
    parts = {}
    for name, part in given.parts.items():
        chosen = [made[row] for row in row_numbers(part.features).tolist()]
        counts = np.array([len(features) for features, _ in chosen], np.int64)
        ends = np.concatenate([[0], np.cumsum(counts)])
        empty = sequences([])
        parts[name] = Examples(
            np.concatenate([empty[0], *(features for features, _ in chosen)]),
            np.concatenate([empty[1], *(labels for _, labels in chosen)]),
            ends[part.offsets],
        )
    silent = np.flatnonzero(parts["train"].counts == 0)
    left_out = {**given.left_out, **{given.clients[i]: NO_TRAINING_ROWS for i in silent}}
    kept = np.flatnonzero(parts["train"].counts)
    if not len(kept):
        raise ScafflixError(f"{origin}: column {column!r} holds no text; give at least one.")
    names = tuple(given.clients[i] for i in kept)
    parts = {name: part.take(kept) for name, part in parts.items()}
    held_out = {part: parts.get(part) for part in HELD_OUT}
    federation = Federation(origin.name, names, parts["train"], **held_out, left_out=left_out)  # type: ignore[arg-type]
    return prepare(federation, wanted.settled(table=False))
