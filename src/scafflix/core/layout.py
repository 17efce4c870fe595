"""Trees as rows of numbers: how the states of clients are kept and moved."""

from __future__ import annotations

import math
from itertools import accumulate, pairwise
from typing import Any, NamedTuple

import jax

from scafflix.core.sharing import ALIGNMENT

Tree = Any
STEP = ALIGNMENT // 4  # numbers


class Layout(NamedTuple):
    """The leaves of a tree one after another, and zeros up to a multiple of 16: rows then
    begin where a core can take them as they are.

    >>> import numpy as np
    >>> layout = Layout.of({"w": np.zeros((2, 3)), "b": np.zeros(3)})
    >>> layout.width
    16
    >>> layout.tree(np.arange(32).reshape(2, 16))["b"].tolist()
    [[0, 1, 2], [16, 17, 18]]
    """

    structure: Any
    shapes: tuple[tuple[int, ...], ...]

    @classmethod
    def of(cls, template: Tree) -> Layout:
        leaves, structure = jax.tree.flatten(template)
        return cls(structure, tuple(tuple(leaf.shape) for leaf in leaves))

    @property
    def size(self) -> int:
        """Numbers of a tree."""
        return sum(map(math.prod, self.shapes))

    @property
    def width(self) -> int:
        """Numbers of a row."""
        return self.size + -self.size % STEP

    def tree(self, rows: Any) -> Tree:
        """The trees of `[..., width]`, an array of NumPy, JAX or PyTorch."""
        cuts = pairwise(accumulate(map(math.prod, self.shapes), initial=0))
        front = rows.shape[:-1]
        leaves = [
            rows[..., start:stop].reshape((*front, *shape))
            for (start, stop), shape in zip(cuts, self.shapes, strict=True)
        ]
        return jax.tree.unflatten(self.structure, leaves)
