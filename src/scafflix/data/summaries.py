"""What clients tell of their columns so that all prepare them alike.

A client tells, of its training rows alone, how many values a column has, their sum and sum of
squares, a few quantiles of numbers, and how often each text occurs. Of several clients the counts
and sums are added, and the quantiles put side by side; in a simulation as in a federation.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, cast, get_args

import numpy as np
from numpy.typing import NDArray

from scafflix.core.errors import ScafflixError
from scafflix.data.preprocessing import Column, Kind, Preprocessing, Unknown
from scafflix.data.scaling import Scale
from scafflix.data.values import Values

LEVELS = (np.arange(33) + 0.5) / 33
"""The quantiles that a client tells of a column of numbers."""

CATEGORY_LIMIT = 100
"""The most distinct values of a text column; more look like an identifier."""

CONSTANT = 1e-12
"""A variance below this share of the mean square is rounding: the column is constant."""

Missing = Literal["fill", "refuse"]


@dataclass(frozen=True)
class ColumnSummary:
    """Of one column; a code counts as a text."""

    kind: Kind | None  # None: every value is missing
    present: int  # values that are there
    total: float = 0.0
    squares: float = 0.0
    largest: float = 0.0  # in absolute value; told only for the scale maxabs
    quantiles: tuple[float, ...] = ()  # of every client with values
    weights: tuple[float, ...] = ()  # rows that each quantile stands for
    counts: Mapping[str, int] = field(default_factory=dict)  # of every text


@dataclass(frozen=True)
class Summary:
    """Of the training rows of one client, or of several together."""

    rows: int
    columns: Mapping[str, ColumnSummary]  # in the order of the table

    def as_dict(self) -> dict[str, Any]:
        """Everything, as JSON can hold it."""
        columns = [{"name": name, **asdict(one)} for name, one in self.columns.items()]
        return {"rows": self.rows, "columns": columns}


def summary_from(words: Mapping[str, Any]) -> Summary:
    """What `as_dict` wrote; ValueError, KeyError or TypeError for anything else."""
    columns = {}
    for entry in words["columns"]:
        told = dict(entry)
        name, told["counts"] = str(told.pop("name")), dict(told["counts"])
        told["quantiles"], told["weights"] = tuple(told["quantiles"]), tuple(told["weights"])
        one = ColumnSummary(**told)
        if one.kind is not None and one.kind not in get_args(Kind):
            raise ValueError(f"column {name!r} is of an unknown kind")
        numbers = [one.present, one.total, one.squares, one.largest, *one.quantiles, *one.weights]
        if len(one.quantiles) != len(one.weights) or not np.isfinite(numbers).all():
            raise ValueError(f"the numbers of column {name!r} do not fit")
        if any(not isinstance(n, int) or n < 1 for n in one.counts.values()):
            raise ValueError(f"the counts of column {name!r} do not fit")
        columns[name] = one
    if not columns or not isinstance(words["rows"], int) or words["rows"] < 1:
        raise ValueError("there are no rows or no columns")
    return Summary(words["rows"], columns)


def summarize(
    found: Mapping[str, Values],
    rows: NDArray[np.int64],
    offsets: NDArray[np.int64],
    scale: Scale,
) -> Summary:
    """Of the training ``rows``; those of client i stand from ``offsets[i]`` to ``offsets[i+1]``."""
    owners = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
    return Summary(
        len(rows), {name: _of_column(one, rows, owners, scale) for name, one in found.items()}
    )


def _of_column(
    found: Values, rows: NDArray[np.int64], owners: NDArray[np.int64], scale: Scale
) -> ColumnSummary:
    there = ~found.missing[rows]
    values, owners = found.values[rows][there], owners[there]
    if found.kind is None or not len(values):
        return ColumnSummary(None, 0)
    if found.kind in ("text", "code"):
        texts, counts = np.unique(values, return_counts=True)
        told = dict(zip(texts.tolist(), counts.tolist(), strict=True))
        return ColumnSummary(found.kind, len(values), counts=told)
    quantiles, weights = _quantiles(values, owners)
    with np.errstate(over="ignore"):  # of numbers too large to standardize, as `decide` says
        total, squares = float(values.sum()), float(np.square(values).sum())
    return ColumnSummary(
        found.kind,
        len(values),
        total,
        squares,
        float(np.abs(values).max()) if scale == "maxabs" else 0.0,
        tuple(quantiles.tolist()),
        tuple(weights.tolist()),
    )


def _quantiles(
    values: NDArray[np.float64], owners: NDArray[np.int64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Every client's values at these levels of its own, and for how many rows each stands.

    >>> _quantiles(np.array([5.0, 1.0, 7.0]), np.zeros(3, int))[0][[0, 16, 32]].tolist()
    [1.0, 5.0, 7.0]
    """
    ordered = values[np.lexsort((values, owners))]
    _, first, counts = np.unique(np.sort(owners), return_index=True, return_counts=True)
    places = first[:, None] + np.floor(LEVELS * counts[:, None]).astype(np.int64)
    return ordered[places].ravel(), np.repeat(counts / len(LEVELS), len(LEVELS))


def merge(told: Mapping[str, Summary]) -> Summary:
    """What several clients, by name, tell together."""
    (first, head), *_ = told.items()
    for client, one in told.items():
        odd = set(one.columns) ^ set(head.columns)
        if odd:
            name = min(odd)
            has, lacks = (client, first) if name in one.columns else (first, client)
            raise ScafflixError(
                f"Client {lacks!r} has no column {name!r}, which {has!r} has; all need the same."
            )
    columns = {
        name: _together(name, {client: one.columns[name] for client, one in told.items()})
        for name in head.columns
    }
    return Summary(sum(one.rows for one in told.values()), columns)


def _together(name: str, told: Mapping[str, ColumnSummary]) -> ColumnSummary:
    known = {client: one for client, one in told.items() if one.kind is not None}
    if not known:
        return ColumnSummary(None, 0)
    ones = list(known.values())
    counts: Counter[str] = Counter()
    for one in ones:
        counts.update(one.counts)
    return ColumnSummary(
        _common_kind(name, known),
        sum(one.present for one in ones),
        sum(one.total for one in ones),
        sum(one.squares for one in ones),
        max(one.largest for one in ones),
        tuple(value for one in ones for value in one.quantiles),
        tuple(weight for one in ones for weight in one.weights),
        dict(sorted(counts.items())),
    )


def _common_kind(name: str, told: Mapping[str, ColumnSummary]) -> Kind:
    """The kind that all have; a boolean is also a number."""
    kinds = {one.kind for one in told.values()}
    if len(kinds) == 1:
        return cast(Kind, kinds.pop())
    if kinds == {"number", "boolean"}:
        return "number"
    clients = {one.kind: client for client, one in told.items()}
    (a, one), (b, other), *_ = sorted(clients.items(), key=lambda entry: str(entry[0]))
    raise ScafflixError(
        f"Column {name!r} holds {KIND_WORDS[a]} at client {one!r} and {KIND_WORDS[b]} at client "
        f"{other!r}; make them alike, or name it under categorical or drop."
    )


KIND_WORDS = {
    "number": "numbers",
    "boolean": "booleans",
    "date": "dates",
    "text": "text",
    "code": "text",
    None: "nothing",
}


def decide(
    summary: Summary,
    *,
    scale: Scale,
    intercept: bool,
    label: str,
    missing: Missing,
    missing_as: Sequence[str],
    unknown: Unknown,
) -> Preprocessing:
    """What is done to every column, from what the clients tell."""
    columns: list[Column] = []
    moments: list[tuple[float, float, float]] = []
    for name, told in summary.columns.items():
        column = _decided(name, told, summary.rows, missing)
        columns.append(column)
        moments += _moments(column, told, summary.rows)
    mean, square, largest = np.array(moments).T
    shift, divisor = np.zeros(len(mean)), np.ones(len(mean))
    if scale == "maxabs":
        divisor = np.where(largest > 0, largest, 1.0)
    if scale == "standard":
        large = np.flatnonzero(~np.isfinite(square))
        if len(large):
            names = [name for column in columns for name in column.names]
            raise ScafflixError(
                f"Column {names[int(large[0])]!r} holds numbers too large to standardize; use "
                "another scale, or name it under drop."
            )
        variance = square - mean**2
        shift = mean
        divisor = np.sqrt(np.where(variance > CONSTANT * square, variance, 1.0))
    return Preprocessing(
        tuple(columns), shift, divisor, intercept, label, unknown, tuple(missing_as)
    )


def _decided(name: str, told: ColumnSummary, rows: int, missing: Missing) -> Column:
    if told.kind is None:
        raise ScafflixError(
            f"Column {name!r} has no value in any training row; name it under drop."
        )
    flagged = told.present < rows and missing == "fill"
    if told.kind in ("text", "code"):
        if len(told.counts) > CATEGORY_LIMIT:
            raise ScafflixError(
                f"Text column {name!r} has {len(told.counts)} distinct values, more than "
                f"{CATEGORY_LIMIT} (an identifier?); name it under drop."
            )
        frequent = min(told.counts, key=lambda text: (-told.counts[text], text))
        fill = frequent if missing == "fill" else None
        return Column(name, told.kind, tuple(sorted(told.counts)), fill, flagged)
    middle = _weighted_median(told) if missing == "fill" else None
    return Column(name, told.kind, (), middle, flagged)


def _weighted_median(told: ColumnSummary) -> float:
    """The value with half of the rows below it, by the quantiles of all clients."""
    values, weights = np.array(told.quantiles), np.array(told.weights)
    order = np.argsort(values, kind="stable")
    below = np.cumsum(weights[order])
    return float(values[order][np.searchsorted(below, below[-1] / 2)])


def _moments(column: Column, told: ColumnSummary, rows: int) -> list[tuple[float, float, float]]:
    """Mean, mean square and largest absolute value of each feature of a column over the training
    rows, missing values filled in."""
    gone = rows - told.present
    if column.categories:
        shares = [
            (told.counts[text] + gone * (text == column.fill)) / rows for text in column.categories
        ]
        made = [(share, share, 1.0) for share in shares]
    else:
        fill = float(column.fill or 0.0)
        mean = (told.total + gone * fill) / rows
        square = (told.squares + gone * fill * fill) / rows
        made = [(mean, square, max(told.largest, abs(fill) if gone else 0.0))]
    return [*made, (gone / rows, gone / rows, 1.0)] if column.flagged else made
