"""Clients with too few rows to take part."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from scafflix.core.arguments import whole_number
from scafflix.core.errors import ScafflixError
from scafflix.data.federation import Federation

NO_TRAINING_ROWS = "no training rows"


def check_threshold(min_examples: int | None) -> int | None:
    """The number of training rows that a client needs, or None."""
    return None if min_examples is None else whole_number("min_examples", min_examples, least=1)


def leave_out(federation: Federation, min_examples: int | None) -> Federation:
    """Leave out the clients with fewer training rows, or without a test or validation row.

    A part that the federation does not have is not asked of its clients. Without a number
    nobody is left out.

    >>> from scafflix.data import from_clients
    >>> fed = leave_out(from_clients({"a": ([[1.0]] * 3, [0] * 3), "b": ([[2.0]], [1])}), 2)
    >>> fed.clients, fed.left_out
    (('a',), {'b': 'fewer than 2 training rows'})
    """
    if min_examples is None:
        return federation
    check_threshold(min_examples)
    reason_of: dict[int, str] = {}
    for part, examples in federation.parts.items():
        least, reason = (
            (min_examples, f"fewer than {min_examples} training rows")
            if part == "train"
            else (1, f"no {part} rows")
        )
        for i in np.flatnonzero(examples.counts < least).tolist():
            reason_of.setdefault(i, reason)
    if not reason_of:
        return federation
    kept = [i for i in range(len(federation.clients)) if i not in reason_of]
    if not kept:
        raise ScafflixError(
            f"min_examples is {min_examples}, which leaves no client of {federation.name}: the "
            f"largest has {federation.train.counts.max()} training rows; "
            "ask for fewer, or hold out less for test and validation."
        )
    left_out = {federation.clients[i]: reason for i, reason in sorted(reason_of.items())}
    return replace(federation.take(kept), left_out={**federation.left_out, **left_out})
