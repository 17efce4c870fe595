"""Names for what a computation depends on, so that its result can be kept under them."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import jax
import numpy as np


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
