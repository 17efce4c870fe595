"""The test and validation parts: rows of each client that training never sees."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from scafflix.core.arguments import real_number
from scafflix.data.federation import Examples, Federation
from scafflix.data.streams import Stream, generator

STREAMS = {"test": Stream.TEST, "validation": Stream.VALIDATION}


def check_fraction(part: str, fraction: float) -> float:
    """The fraction to hold out for the part, in [0, 1)."""
    return real_number(part, fraction, below=1.0)


def hold_out(
    federation: Federation,
    fraction: float,
    seed: int,
    part: Literal["test", "validation"] = "test",
) -> Federation:
    """Move a random fraction of each client's training rows to its test or validation part.

    A client of n rows gives ``min(round(fraction * n), n - 1)``: it keeps one to train on.
    The rows keep their order in both parts.

    >>> from scafflix.data import from_clients
    >>> fed = from_clients({"a": ([[1.0]] * 10, [0] * 10), "b": ([[2.0]], [1])})
    >>> hold_out(fed, 0.3, seed=0).test.counts.tolist()
    [3, 0]
    """
    fraction = check_fraction(part, fraction)
    if fraction == 0.0:
        return federation
    rows = federation.train
    counts = rows.counts
    # Sorting by (client, random number) ranks each client's rows at random.
    order = np.lexsort((generator(seed, STREAMS[part]).random(len(rows.labels)), rows.owners))
    rank = np.empty(len(order), dtype=np.int64)
    rank[order] = np.arange(len(order)) - np.repeat(rows.offsets[:-1], counts)
    held = np.minimum(np.rint(fraction * counts).astype(np.int64), counts - 1)
    chosen = rank < np.repeat(held, counts)
    held_out = {part: keep(rows, np.flatnonzero(chosen))}
    return replace(federation, train=keep(rows, np.flatnonzero(~chosen)), **held_out)  # type: ignore[arg-type]


def keep(examples: Examples, rows: NDArray[np.int64]) -> Examples:
    """Only these rows, given in rising order."""
    offsets = np.searchsorted(rows, examples.offsets).astype(np.int64)
    return Examples(examples.features[rows], examples.labels[rows], offsets)
