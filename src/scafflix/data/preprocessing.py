"""From the columns of a table to the features of a model: part of the model, and saved with it.

A number, a date or a boolean is one feature. A text is one 0/1 feature for each value that the
training rows have. Where training rows lacked a value, the median or the most frequent value stands
for it, and a 0/1 feature says so. Then every feature is shifted and divided, and a constant may
follow.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal, cast, get_args

import numpy as np
from numpy.typing import NDArray

from scafflix.core.errors import ScafflixError

if TYPE_CHECKING:
    from scafflix.data.values import Values

Kind = Literal["number", "boolean", "date", "text", "code"]
"""A code is a number that stands for a kind, not for an amount: it becomes a text."""

Unknown = Literal["other", "refuse"]
"""A text that no training row has: another value (all features of its column are 0), or refused."""

FORMAT = 1  # of what `as_dict` writes
OF_TEXT = "="  # between a column of text and one of its values, in the name of a feature
LACKED = " is missing"  # behind a column, in the name of the feature that says so
INTERCEPT = "intercept"


@dataclass(frozen=True)
class Column:
    """A column of a table, and what is made of it."""

    name: str
    kind: Kind
    categories: tuple[str, ...] = ()  # of texts and codes: a feature each
    fill: float | str | None = None  # for a missing value; None: it is refused
    flagged: bool = False  # whether a feature says where a value was missing

    @property
    def names(self) -> tuple[str, ...]:
        """The names of its features.

        >>> Column("colour", "text", ("blue", "red"), "red", flagged=True).names
        ('colour=blue', 'colour=red', 'colour is missing')
        """
        values = tuple(f"{self.name}{OF_TEXT}{value}" for value in self.categories)
        named = values if self.kind in ("text", "code") else (self.name,)
        return (*named, f"{self.name}{LACKED}") if self.flagged else named

    def fill_in(self, found: Values, features: NDArray[np.float64], unknown: Unknown) -> None:
        """Write its features into zeros ``[rows, len(names)]``."""
        if found.missing.any() and self.fill is None:
            row = int(np.argmax(found.missing))
            raise ScafflixError(
                f"{found.place(row)}: column {self.name!r} has a missing value; fill it, or remove "
                "the row."
            )
        if self.flagged:
            features[:, -1] = found.missing
        if self.kind not in ("text", "code"):
            features[:, 0] = np.where(found.missing, float(self.fill or 0), found.values)
            return
        texts = np.where(found.missing, "" if self.fill is None else str(self.fill), found.values)
        places = np.searchsorted(self.categories, texts)
        places = np.minimum(places, len(self.categories) - 1)
        known = np.array(self.categories)[places] == texts
        if unknown == "refuse" and not known.all():
            row = int(np.argmin(known))
            raise ScafflixError(
                f"{found.place(row)}: column {self.name!r} is {str(texts[row])!r}, which no "
                f"training row has; known are {_listed(self.categories)}."
            )
        features[np.flatnonzero(known), places[known]] = 1.0


@dataclass(frozen=True, eq=False)
class Preprocessing:
    """What is done to the columns of a table, or to rows of numbers, before a model sees them."""

    columns: tuple[Column, ...]  # none: rows of numbers, taken as they are
    shift: NDArray[np.float64]  # [features]
    divisor: NDArray[np.float64]  # [features]
    intercept: bool = False
    label: str = ""  # the column of labels
    unknown: Unknown = "other"
    missing_as: tuple[str, ...] = ()  # words that stand for a missing value, besides none at all

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the features that columns give, without the intercept."""
        return tuple(name for column in self.columns for name in column.names)

    @property
    def width(self) -> int:
        """The number of features that a model sees."""
        return len(self.shift) + self.intercept

    def encode(self, found: Mapping[str, Values]) -> NDArray[np.float64]:
        """The features of a table's rows, not yet scaled."""
        rows = len(found[self.columns[0].name].values)
        features = np.zeros((rows, len(self.shift)))
        first = 0
        for column in self.columns:
            end = first + len(column.names)
            column.fill_in(found[column.name], features[:, first:end], self.unknown)
            first = end
        return features

    def scale(self, features: NDArray[np.float64]) -> NDArray[np.float64]:
        """The features as the model sees them: shifted, divided, followed by the intercept."""
        scaled = (features - self.shift) / self.divisor
        return np.hstack([scaled, np.ones((len(scaled), 1))]) if self.intercept else scaled

    def features(self, found: Mapping[str, Values]) -> NDArray[np.float64]:
        """From a table's columns to what the model sees."""
        return self.scale(self.encode(found))

    def as_dict(self) -> dict[str, Any]:
        """Everything, as JSON can hold it."""
        columns = [asdict(column) for column in self.columns]
        numbers = {"shift": self.shift.tolist(), "divisor": self.divisor.tolist()}
        rest = {
            name: getattr(self, name) for name in ("intercept", "label", "unknown", "missing_as")
        }
        return {"format": FORMAT, "columns": columns, **numbers, **rest}


def from_dict(words: Mapping[str, Any]) -> Preprocessing:
    """What `as_dict` wrote; ValueError, KeyError or TypeError for anything else.

    >>> made = Preprocessing((Column("age", "number", fill=50.0),), np.ones(1), np.ones(1), True)
    >>> from_dict(made.as_dict()).scale(np.array([[3.0]])).tolist()
    [[2.0, 1.0]]
    """
    if words["format"] != FORMAT:
        raise ValueError(f"preprocessing has the format {words['format']} instead of {FORMAT}")
    columns = tuple(_column(**entry) for entry in words["columns"])
    shift, divisor = (np.array(words[name], np.float64) for name in ("shift", "divisor"))
    made = Preprocessing(
        columns,
        shift,
        divisor,
        intercept=_one_of(words["intercept"], (True, False)),
        label=str(words["label"]),
        unknown=cast(Unknown, _one_of(words["unknown"], get_args(Unknown))),
        missing_as=tuple(map(str, words["missing_as"])),
    )
    fits = shift.ndim == 1 and shift.shape == divisor.shape and (divisor != 0).all()
    if not fits or not np.isfinite([shift, divisor]).all():
        raise ValueError("preprocessing has an unfit shift or divisor")
    if columns and len(made.names) != len(shift):
        raise ValueError(f"preprocessing has {len(made.names)} features and {len(shift)} scales")
    return made


def _column(
    name: str, kind: str, categories: Sequence[str], fill: float | str | None, flagged: bool
) -> Column:
    _one_of(kind, get_args(Kind))
    texts = tuple(map(str, categories))
    if kind in ("text", "code") and (not texts or sorted(set(texts)) != list(texts)):
        raise ValueError(f"the values of column {name!r} are not a sorted list")
    return Column(str(name), cast(Kind, kind), texts, fill, _one_of(flagged, (True, False)))


def _one_of(value: Any, allowed: Sequence[Any]) -> Any:
    if value not in allowed:
        raise ValueError(f"preprocessing holds {value!r} instead of one of {allowed}")
    return value


def _listed(categories: tuple[str, ...]) -> str:
    return ", ".join(map(repr, categories[:5])) + (", ..." if len(categories) > 5 else "")
