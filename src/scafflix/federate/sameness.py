"""Whether the modules of two nodes compute the same. What is frozen in them is in no message, so
that nodes whose bases differ would average adapters of different models."""

from __future__ import annotations

import json

from scafflix.federate.naming import OfModule
from scafflix.problems.fingerprints import answers_alike


def computes_of(learner: object) -> str:
    """What a module makes of made-up examples with made-up arrays: their shape, the size of its
    outputs and some sums of them, as JSON; empty if the model is none, or cannot be tried so."""
    return learner.computes() if isinstance(learner, OfModule) else ""


def compute_alike(one: str, other: str) -> bool:
    """Whether two such texts are of one module, as far as they tell: of modules that were tried
    on examples of different shapes nothing is known.

    >>> compute_alike('[[3], [2.0, 0.5]]', '[[3], [2.0, 0.5001]]')
    True
    >>> compute_alike('[[3], [2.0, 0.5]]', '[[3], [2.0, 0.6]]')
    False
    >>> compute_alike('[[3], [2.0, 0.5]]', "")
    True
    """
    if not (one and other):
        return True
    try:
        (shape, mine), (theirs, yours) = json.loads(one), json.loads(other)
        return shape != theirs or answers_alike(mine, yours)
    except (ValueError, TypeError, IndexError, RecursionError):  # of a node that tells no numbers
        return False
