"""What gradients remember, a point of the past of each client, and what is estimated with it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
from jax import Array

Point = Any
Points = Any  # a point, or a tuple of points
Number = Any


class Reference(NamedTuple):
    """A point of the past and grad f_i there; zeros until a client makes its first step."""

    y: Point
    slope: Point
    known: Number  # 1; 0 before the first step

    @classmethod
    def nothing(cls, point: Point) -> Reference:
        """Of such a point, before the first step."""
        zero = 0 * jax.tree.leaves(point)[0].sum()  # a number of the model's type
        return cls(0 * point, 0 * point, zero)


class Query(NamedTuple):
    """Where a client wants gradients, and what it remembers of each of these points.

    The answer has the same form: the estimates, and what the client remembers after them.
    """

    points: Points
    memory: tuple[Reference, ...]
    q: Number

    def answer(
        self,
        batch: Callable[[Point], Point],
        full: Callable[[Point, Number], Point],
        uniform: Number,
        choose: Callable[[Number, Any, Any], Any],
    ) -> Query:
        """g_S(x) - g_S(y) + grad f_i(y) at every point x, and y = x where `uniform` is below q.

        `batch` is g_S, on one sample; `full(x, where)` is grad f_i(x) where it is needed, and
        anything elsewhere; `choose(condition, yes, no)` takes the one or the other.
        """
        points, form = points_of(self.points)
        found, after = [], []
        for x, (y, slope, known) in zip(points, self.memory, strict=True):
            renewed = (uniform < self.q) | (known == 0)
            here = x, full(x, renewed)
            y, slope = choose(known == 0, here, (y, slope))
            found.append(batch(x) - batch(y) + slope)
            y, slope = choose(renewed, here, (y, slope))
            after.append(Reference(y, slope, 0 * known + 1))
        return Query(jax.tree.unflatten(form, found), tuple(after), self.q)


def answer_of(found: Point | Query) -> tuple[Point, tuple[Reference, ...]]:
    """The estimate, and what is remembered after it."""
    return (found.points, found.memory) if isinstance(found, Query) else (found, ())


def either(condition: bool, yes: Any, no: Any) -> Any:
    """What `choose` is to one client."""
    return yes if condition else no


def points_of(asked: Points) -> tuple[list[Any], Any]:
    """The points that are asked about, one by one, and how they belong together."""
    return jax.tree.flatten(asked, is_leaf=lambda one: hasattr(one, "tree"))


def renewal_draw(key: Array) -> Array:
    """The number that says whether a client renews its memory, from the key of its step."""
    return jax.random.uniform(jax.random.fold_in(key, 1))
