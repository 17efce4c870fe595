"""On which of its inputs each output of a function depends, read off its program."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import jax
from jax.extend.core import Literal


def tainted(function: Callable[..., Any], arguments: Any, marks: Any) -> Any:
    """A tree of truth values in the form of what the function returns: whether an output depends
    on an input that is marked. `marks` has a truth value for every leaf of the arguments, a tuple.

    >>> tainted(lambda x, y: (x + 1, x * y, 2.0), (1.0, 3.0), (False, True))
    (False, True, False)
    """
    program, shapes = jax.make_jaxpr(function, return_shape=True)(*arguments)
    inner = program.jaxpr
    marked = dict(zip(inner.invars, jax.tree.leaves(marks), strict=True))

    def any_of(variables: Iterable[Any]) -> bool:
        return any(not isinstance(v, Literal) and marked.get(v, False) for v in variables)

    for operation in inner.eqns:
        found = any_of(operation.invars)
        marked |= dict.fromkeys(operation.outvars, found)
    outputs = [any_of([variable]) for variable in inner.outvars]
    return jax.tree.unflatten(jax.tree.structure(shapes), outputs)
