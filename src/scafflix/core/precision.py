"""float64 where a convex problem computes; everywhere else JAX stays as its user has it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, ParamSpec, TypeVar

import jax

P = ParamSpec("P")
R = TypeVar("R")


def precision(linear: bool) -> AbstractContextManager[Any]:
    """float64 for a linear model; for a network, JAX as its user has it."""
    return jax.enable_x64(True) if linear else nullcontext()


def in_float64(function: Callable[P, R]) -> Callable[P, R]:
    """The function with JAX in double precision while it runs, in the thread that runs it.

    Its results should be NumPy arrays: outside, JAX would round those of its own to float32.

    >>> import numpy as np
    >>> in_float64(lambda x: np.asarray(jax.numpy.asarray(x)))(1 / 3).dtype
    dtype('float64')
    """
    return jax.enable_x64(True)(function)
