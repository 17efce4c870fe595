"""Points of PyTorch tensors. Import this where PyTorch is known to be there."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Sequence
from typing import Any

import jax
import numpy as np
import torch

from scafflix.core.vector import Scalar, Tree, Vector

ROUNDING = 1e-12  # factors whose sum is 1 but for this are those of a mixture


@jax.tree_util.register_pytree_node_class
class Tensors:
    """A sum of trees of tensors, each times a number; evaluated when its tree is asked for.

    Points have only `+`, `-` and multiplication by a number, so that whatever a method writes is
    such a sum: it takes one pass over memory for each term, and none for brackets.

    >>> x, g, h = (Tensors({"weight": torch.tensor([value])}) for value in (3.0, 2.0, 1.0))
    >>> (x - 0.5 * (g - h)).tree
    {'weight': tensor([2.5000])}
    """

    __array_ufunc__ = None  # NumPy scalars leave `scalar * point` to us
    __slots__ = ("_terms",)

    def __init__(self, tree: Tree) -> None:
        self._terms: tuple[tuple[float, Tree], ...] = ((1.0, tree),)

    def __add__(self, other: Tensors) -> Tensors:
        return _summed((*self._terms, *other._terms))

    def __sub__(self, other: Tensors) -> Tensors:
        return self + -1.0 * other

    def __mul__(self, factor: Scalar) -> Tensors:
        by = float(factor)
        return _summed([(by * mine, tree) for mine, tree in self._terms])

    __rmul__ = __mul__

    @property
    def tree(self) -> Tree:
        self._evaluate()
        return self._terms[0][1]

    def _evaluate(self, free: Container[int] = ()) -> bool:
        """Whether there was something to do. Tensors that are free, by their id, may be written
        over."""
        factors, trees = zip(*self._terms, strict=True)
        if factors == (1.0,):
            return False

        def combined(*leaves: torch.Tensor) -> torch.Tensor:
            first = leaves[factors.index(1.0)] if 1.0 in factors else None
            return _combined(factors, leaves, first if id(first) in free else None)

        self._terms = ((1.0, jax.tree.map(combined, *trees)),)
        return True

    def tree_flatten(self) -> tuple[tuple[Tree], None]:
        return (self.tree,), None

    @classmethod
    def tree_unflatten(cls, _: None, children: tuple[Tree]) -> Tensors:
        return cls(children[0])

    def __repr__(self) -> str:
        return f"Tensors({self.tree!r})"


def evaluated(tree: Tree) -> Tree:
    """A tree in which every sum of tensors is evaluated."""
    return jax.tree.map(lambda leaf: leaf, tree)


class InPlace:
    """Evaluates the points of one step after another, x + ... over x: only where x comes from the
    step before and no other point of this one is made of it.

    >>> step, g = InPlace(), Tensors({"weight": torch.tensor([2.0])})
    >>> x = step(Tensors({"weight": torch.tensor([3.0])}) - 0.5 * g)
    >>> step(x - 0.5 * g).tree["weight"] is x.tree["weight"]
    True
    """

    def __init__(self) -> None:
        self._made: dict[int, torch.Tensor] = {}

    def __call__(self, tree: Tree) -> Tree:
        points = [one for one in jax.tree.leaves(tree, is_leaf=is_point) if is_point(one)]
        uses = Counter(id(leaf) for one in points for leaf in _leaves(one))
        free = {number for number in self._made if uses[number] == 1}
        self._made = {}
        for point in points:
            if point._evaluate(free):
                self._made |= {id(leaf): leaf for leaf in _leaves(point)}
        return evaluated(tree)


def _leaves(point: Tensors) -> list[torch.Tensor]:
    return [leaf for _, tree in point._terms for leaf in jax.tree.leaves(tree)]


def write(tree: Tree, room: Sequence[torch.Tensor]) -> None:
    """Evaluate the points of a tree into as many tensors as it has leaves, without a copy
    between."""
    targets = iter(room)
    for point in jax.tree.leaves(tree, is_leaf=is_point):
        if not isinstance(point, Tensors):
            next(targets).fill_(float(point))
            continue
        factors, trees = zip(*point._terms, strict=True)
        columns = [jax.tree.leaves(one) for one in trees]
        for leaves in zip(*columns, strict=True):
            target = next(targets)
            if leaves[0].device == target.device:
                _combined(factors, leaves, target)
            else:
                target.copy_(_combined(factors, leaves))


def in_tensors(tree: Tree, device: torch.device) -> Tensors:
    """A tree of NumPy arrays as a point on a device; on a processor, the same memory."""
    return Tensors(jax.tree.map(lambda leaf: as_tensor(leaf, device), tree))


def as_tensor(array: Any, device: torch.device) -> torch.Tensor:
    """An array on a device; on a processor in the same memory, if that may be written to."""
    if not isinstance(array, torch.Tensor):
        array = np.asarray(array)
        array = np.require(array, requirements=["C", "W"])
    return torch.as_tensor(array, device=device)


def as_points(tree: Tree, device: torch.device) -> Tree:
    """A tree of vectors of NumPy arrays and of numbers, with points of tensors for vectors."""

    def point(one: Any) -> Any:
        return in_tensors(one.tree, device) if isinstance(one, Vector) else float(one)

    return jax.tree.map(point, tree, is_leaf=lambda one: isinstance(one, Vector))


def in_numpy(tree: Tree) -> Tree:
    """The same tree with NumPy arrays for tensors; those of a processor are not copied."""
    return jax.tree.map(
        lambda leaf: leaf.detach().cpu().numpy() if isinstance(leaf, torch.Tensor) else leaf, tree
    )


def in_vectors(tree: Tree) -> Tree:
    """The same tree with vectors of NumPy arrays for points of tensors."""

    def vector(one: Any) -> Any:
        return Vector(in_numpy(one.tree)) if isinstance(one, Tensors) else one

    return jax.tree.map(vector, tree, is_leaf=is_point)


def is_point(one: object) -> bool:
    """Where a tree of points ends."""
    return isinstance(one, Tensors)


def _summed(terms: Sequence[tuple[float, Tree]]) -> Tensors:
    """With the terms of the same tree put together."""
    factors: dict[int, float] = {}
    trees: dict[int, Tree] = {}
    for factor, tree in terms:
        factors[id(tree)] = factors.get(id(tree), 0.0) + factor
        trees[id(tree)] = tree
    made = Tensors(None)
    made._terms = tuple((factors[one], tree) for one, tree in trees.items())
    return made


def _combined(factors: Sequence[float], leaves: Sequence[Any], out: Any = None) -> Any:
    """sum_k factor_k leaf_k, in as few passes as there are terms."""
    if len(leaves) == 1:
        return torch.mul(leaves[0], factors[0], out=out)
    if len(leaves) == 2 and abs(sum(factors) - 1) < ROUNDING and 1.0 not in factors:
        return torch.lerp(leaves[1], leaves[0], factors[0], out=out)
    if 1.0 in factors:
        first = factors.index(1.0)
        second, *rest = (k for k in range(len(leaves)) if k != first)
        made = torch.add(leaves[first], leaves[second], alpha=factors[second], out=out)
    else:
        made, rest = torch.mul(leaves[0], factors[0], out=out), list(range(1, len(leaves)))
    for k in rest:
        made.add_(leaves[k], alpha=factors[k])
    return made
