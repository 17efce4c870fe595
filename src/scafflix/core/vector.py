"""Parameter trees as points of a vector space, so that methods read like the paper's lines."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.tree_util import keystr

Tree = Any  # a nest of dicts, lists and tuples with arrays at the leaves
Scalar = Any  # a number, or an array that broadcasts to every leaf


@jax.tree_util.register_pytree_node_class
class Vector:
    """A tree of arrays with `+`, `-` and multiplication by a scalar, leaf by leaf.

    >>> x, g = Vector({"weight": 3.0}), Vector({"weight": 2.0})
    >>> (x - 0.5 * g).tree
    {'weight': 2.0}
    """

    __array_ufunc__ = None  # NumPy scalars leave `scalar * vector` to us
    __slots__ = ("tree",)

    def __init__(self, tree: Tree) -> None:
        self.tree = tree

    def __add__(self, other: Vector) -> Vector:
        return self._map(lambda a, b: a + b, other)

    def __sub__(self, other: Vector) -> Vector:
        return self._map(lambda a, b: a - b, other)

    def __mul__(self, factor: Scalar) -> Vector:
        return self._map(lambda a: a * factor)

    __rmul__ = __mul__

    def _map(self, function: Callable[..., Any], *others: Vector) -> Vector:
        return Vector(jax.tree.map(function, self.tree, *(other.tree for other in others)))

    def tree_flatten(self) -> tuple[tuple[Tree], None]:
        return (self.tree,), None

    @classmethod
    def tree_unflatten(cls, _: None, children: tuple[Tree]) -> Vector:
        return cls(children[0])

    def __repr__(self) -> str:
        return f"Vector({self.tree!r})"


def choose(condition: Any, yes: Tree, no: Tree) -> Tree:
    """One of two trees, entry by entry of the leading axes that the condition has."""

    def pick(a: Any, b: Any) -> Any:
        shape = condition.shape + (1,) * (a.ndim - condition.ndim)
        return jnp.where(condition.reshape(shape), a, b)

    return jax.tree.map(pick, yes, no)


def inner(one: Any, other: Any) -> Any:
    """<x, y> over all numbers of two points: trees of arrays of any kind.

    >>> int(inner(Vector({"weight": jnp.array([1, 2])}), Vector({"weight": jnp.array([3, 4])})))
    11
    """
    leaves = zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True)
    return sum((x * y).sum() for x, y in leaves)


def names_of(tree: Tree) -> tuple[str, ...]:
    """The names of a tree's arrays, in order: their paths. One array alone has no name.

    >>> names_of({"conv1": {"bias": 0.0, "weight": 1.0}, "layers": [2.0]})
    ('conv1/bias', 'conv1/weight', 'layers/0')
    """
    paths = [path for path, _ in jax.tree_util.tree_leaves_with_path(tree)]
    return tuple(keystr(path, simple=True, separator="/") for path in paths)
