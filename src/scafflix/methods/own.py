"""Arrays that stay at home: which they are, by patterns of their names, and points without them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import Any

import jax

from scafflix.core.arguments import instance
from scafflix.core.errors import ScafflixError
from scafflix.methods.method import Method, Point

MANY = 12  # names of arrays that a sentence has room for


def _absent(leaf: Any) -> bool:
    return leaf is None


@jax.tree_util.register_static
@dataclass(frozen=True)
class Parts:
    """The own arrays of a model, by their numbers. A part of a point is the same tree with None,
    which is no array, in the place of the others: what is sent or stored is so much smaller."""

    own: tuple[int, ...] = ()

    def owned(self, point: Point) -> Point:
        """The arrays that stay at home."""
        return self._part(point, own=True)

    def shared(self, point: Point) -> Point:
        """The arrays that travel."""
        return self._part(point, own=False)

    def _part(self, point: Point, own: bool) -> Point:
        leaves, form = jax.tree.flatten(point)
        kept = [leaf if (k in self.own) == own else None for k, leaf in enumerate(leaves)]
        return jax.tree.unflatten(form, kept)


def joined(part: Point, point: Point) -> Point:
    """The arrays of a part, and of a point those that the part does not have."""
    return jax.tree.map(
        lambda mine, other: other if mine is None else mine, part, point, is_leaf=_absent
    )


@jax.tree_util.register_static
@dataclass(frozen=True)
class Patterns:
    """Patterns of names, separated by blanks; None: the last layer."""

    text: str | None

    def __post_init__(self) -> None:
        if self.text is not None:
            instance("own", self.text, str, "patterns of names of arrays, such as 'output/*'")

    def fit(self, method: Method, names: Sequence[str]) -> tuple[Method, Parts]:
        """The method with its patterns written out, and the arrays that match, some but not all."""
        if len(names) < 2:
            raise ScafflixError(
                f"With {method.name} some arrays of a model stay at home, and this model has one "
                "array; take a network."
            )
        text = last_layer(names) if self.text is None else self.text
        these = _shown(names)
        if text is None:
            raise ScafflixError(
                f"{method.name} needs own, since the last layer is not known among the arrays "
                f"{these}; give patterns of names."
            )
        own = tuple(
            number
            for number, name in enumerate(names)
            if any(fnmatchcase(name, pattern) for pattern in text.split())
        )
        if not own or len(own) == len(names):
            which = "all" if own else "none"
            raise ScafflixError(
                f"own is {text!r}, which matches {which} of the arrays {these}; some must stay at "
                "home, and some be shared."
            )
        return replace(method, settings={**method.settings, "own": text}), Parts(own)


def last_layer(names: Sequence[str]) -> str | None:
    """The pattern of the layer that is called output, or has the largest number, or is the last
    of a PyTorch module; None where it cannot be told.

    >>> last_layer(["layer0/bias", "layer0/weight", "layer1/bias", "layer1/weight"])
    'layer1/*'
    >>> last_layer(["body.0.weight", "body.0.bias", "head.weight", "head.bias"])
    'head.*'
    """
    if all("." in name for name in names):  # of a PyTorch module, in its order
        return f"{names[-1].rpartition('.')[0]}.*"
    layers = {name.partition("/")[0] for name in names}
    if "output" in layers:
        return "output/*"
    numbers = [re.fullmatch(r"layer(\d+)", layer) for layer in layers]
    found = [int(number[1]) for number in numbers if number is not None]
    return f"layer{max(found)}/*" if len(found) == len(layers) else None


def _shown(names: Sequence[str]) -> str:
    more = f" and {len(names) - MANY} more" if len(names) > MANY else ""
    return ", ".join(names[:MANY]) + more
