"""Names for what a computation depends on, so that its result can be kept under them."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Mapping
from typing import Any

import jax
import numpy as np

_ADDRESSES = re.compile(r"0x[0-9a-f]+")  # of functions, other in every process


def digest_of(*things: Any) -> str:
    """A digest of arrays and of whatever JSON can hold, in order.

    >>> digest_of({"a": 1}, np.zeros(3)) == digest_of({"a": 1}, np.zeros(3))
    True
    >>> digest_of(np.zeros(3)) == digest_of(np.zeros((3, 1)))
    False
    """
    digest = hashlib.sha256()
    for thing in things:
        if isinstance(thing, np.ndarray | jax.Array):
            array = np.ascontiguousarray(thing)
            digest.update(f"{array.dtype}{array.shape}".encode())
            digest.update(array.tobytes() if array.dtype.hasobject else array.data)
        else:
            digest.update(json.dumps(thing, sort_keys=True).encode())
    return digest.hexdigest()[:32]


def without_addresses(thing: Any) -> str:
    """A text that is the same in every process."""
    return _ADDRESSES.sub("", str(thing))


def program_of(function: Callable[..., Any], *arguments: Any) -> tuple[str, list[Any]]:
    """A function operation by operation, and the arrays that it holds."""
    traced = jax.make_jaxpr(function)(*arguments)
    return without_addresses(traced), [np.asarray(value) for value in traced.consts]


def difference(found: Mapping[str, Any], mine: Mapping[str, Any]) -> str | None:
    """The first thing in which two descriptions differ, in words; what is missing is None.

    >>> difference({"l2": 0.1, "model": "linear"}, {"model": "linear", "l2": 0.2})
    'its l2 is 0.1, here it is 0.2'
    """
    for name in [*mine, *(name for name in found if name not in mine)]:
        theirs, here = found.get(name), mine.get(name)
        if isinstance(theirs, Mapping) and isinstance(here, Mapping):
            if within := difference(theirs, here):
                return within
        elif theirs != here:
            return f"its {name} is {theirs}, here it is {here}"
    return None
