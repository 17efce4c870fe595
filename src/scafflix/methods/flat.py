"""A message as one row of d numbers: the numbers of its arrays, one array after another."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from scafflix.methods.method import Message


def numbers_of(message: Message) -> int:
    """d: the numbers of all arrays of a message."""
    return sum(int(np.prod(leaf.shape)) for leaf in jax.tree.leaves(message))


def widest(message: Message) -> np.dtype[Any]:
    """The type in which a message is one row: that of its arrays, or the widest of them."""
    return np.result_type(*(leaf.dtype for leaf in jax.tree.leaves(message)))


def library(message: Message) -> Any:
    """NumPy for its own arrays, which so keep their precision, and JAX for all others."""
    return np if all(isinstance(leaf, np.ndarray) for leaf in jax.tree.leaves(message)) else jnp


def each(function: Callable[[Any, int], Any], message: Message) -> Message:
    """A function of each array and of the place of its first number in the row."""
    leaves, form = jax.tree.flatten(message)
    firsts = np.cumsum([0, *(int(np.prod(leaf.shape)) for leaf in leaves)])[:-1].tolist()
    made = [function(leaf, first) for leaf, first in zip(leaves, firsts, strict=True)]
    return jax.tree.unflatten(form, made)


def in_numpy(message: Message) -> Message:
    """With NumPy arrays only."""
    return jax.tree.map(np.asarray, message)


def row_of(message: Message) -> NDArray[Any]:
    """All numbers of a message of NumPy arrays, as its widest type."""
    kind = widest(message)
    parts = [leaf.astype(kind, copy=False).ravel() for leaf in jax.tree.leaves(message)]
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


def shaped(row: NDArray[Any], template: Message) -> Message:
    """A row as a message of the template's shapes and types."""

    def cut(leaf: Any, first: int) -> NDArray[Any]:
        part = row[first : first + leaf.size]
        return part.reshape(leaf.shape).astype(leaf.dtype, copy=False)

    return each(cut, template)
