"""The names of a model's arrays in files and in the record: those that its framework uses."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

from numpy.typing import NDArray

from scafflix.core.vector import Vector
from scafflix.record import COUNTED

WHOLE = "model"  # the name for a model of one array
LONGEST = 1000  # characters in a name


@runtime_checkable
class Named(Protocol):
    """A learner whose arrays have names; otherwise they are numbered."""

    def named(self, point: Vector) -> dict[str, NDArray[Any]]:
        """A model as it is saved: the arrays of a point, each under every name it has, and whatever
        else belongs to the model, such as frozen parameters."""


@runtime_checkable
class OfModule(Protocol):
    """A learner whose model is a user's own module."""

    def counted_names(self) -> tuple[str, ...]:
        """Which of the arrays that are saved batch norms have counted."""

    def about(self) -> dict[str, Any]:
        """What a record holds of the module besides arrays."""

    def computes(self) -> str:
        """What the module makes of made-up examples, as `sameness` compares it."""


def named(learner: object, point: Vector) -> dict[str, NDArray[Any]]:
    """A model as it is saved."""
    if isinstance(learner, Named):
        return learner.named(point)
    return {_number(place): array for place, array in enumerate(point.tree)}


def names_of(learner: object, point: Vector) -> str:
    """The names of each array of a point, as JSON; empty if there are none."""
    if not isinstance(learner, Named):
        return ""
    saved = learner.named(point)
    return json.dumps([[key for key, a in saved.items() if a is own] for own in point.tree])


def first_names(names: str, count: int) -> tuple[str, ...]:
    """One name for each array, as it is saved: the first that a node sent, or its number.

    >>> first_names('[["encoder.weight", "decoder.weight"]]', 1), first_names("", 1)
    (('encoder.weight',), ('000000',))
    """
    told = _read(names, count)
    return tuple(own[0] for own in told) if told else tuple(map(_number, range(count)))


def _number(place: int) -> str:
    return f"{place:06d}"


def under_names(kind: str, names: str, arrays: Sequence[NDArray[Any]]) -> dict[str, NDArray[Any]]:
    """Arrays for a record, under the names that a node sent if they fit, otherwise by number.

    >>> import numpy as np
    >>> list(under_names("global", '[["encoder.weight", "decoder.weight"]]', [np.zeros(2)]))
    ['global/encoder.weight', 'global/decoder.weight']
    >>> list(under_names("global", '[["model"]]', [np.zeros(2)]))
    ['global']
    >>> list(under_names("global", "]", [np.zeros(2), np.zeros(3)]))
    ['global/000', 'global/001']
    """
    told = _read(names, len(arrays)) or (
        [[WHOLE]] if len(arrays) == 1 else [[f"{number:03d}"] for number in range(len(arrays))]
    )
    return {
        kind if told == [[WHOLE]] else f"{kind}/{name}": array
        for own, array in zip(told, arrays, strict=True)
        for name in own
    }


def recorded(
    learner: object, start: Vector, kind: str, saved: Mapping[str, NDArray[Any]]
) -> dict[str, NDArray[Any]]:
    """A model as it is saved, as the record of one client holds it: what is trained, and what
    batch norms counted; what is frozen is as the module's file makes it."""
    names = names_of(learner, start)
    point = [saved[name] for name in first_names(names, len(start.tree))]
    made = under_names(kind, names, point)
    if isinstance(learner, OfModule):
        made |= {f"{COUNTED}/{kind}/{name}": saved[name] for name in learner.counted_names()}
    return {name: array[None] for name, array in made.items()}


def _read(names: str, count: int) -> list[list[str]] | None:
    """The names for this many arrays; None if the text is anything else."""
    try:
        told = json.loads(names)
        flat = [name for own in told for name in own]
        good = len(told) == count and all(told) and len(set(flat)) == len(flat)
        good = good and all(isinstance(own, list) for own in told)
        return told if good and all(map(_is_good, flat)) else None
    except (ValueError, TypeError, RecursionError):
        return None


def _is_good(name: Any) -> bool:
    return isinstance(name, str) and 0 < len(name) <= LONGEST and name.isprintable()
