"""The test part: rows of each client that training never sees."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from scafflix.data.arguments import real_number
from scafflix.data.federation import Examples, Federation
from scafflix.data.streams import Stream, generator


def check_fraction(fraction: float) -> float:
    """The fraction to hold out, in [0, 1)."""
    return real_number("test", fraction, below=1.0)


def hold_out(federation: Federation, fraction: float, seed: int) -> Federation:
    """Move a random fraction of each client's rows to its test part.

    A client of n rows gives ``min(round(fraction * n), n - 1)``: it keeps one to train on.
    The rows keep their order in both parts.

    >>> from scafflix.data import from_clients
    >>> fed = from_clients({"a": ([[1.0]] * 10, [0] * 10), "b": ([[2.0]], [1])})
    >>> hold_out(fed, 0.3, seed=0).test.counts.tolist()
    [3, 0]
    """
    if check_fraction(fraction) == 0.0:
        return federation
    rows = federation.train
    counts = rows.counts
    # Sorting by (client, random number) ranks each client's rows at random.
    order = np.lexsort((generator(seed, Stream.TEST).random(len(rows.labels)), rows.owners))
    rank = np.empty(len(order), dtype=np.int64)
    rank[order] = np.arange(len(order)) - np.repeat(rows.offsets[:-1], counts)
    held = np.minimum(np.rint(fraction * counts).astype(np.int64), counts - 1)
    chosen = rank < np.repeat(held, counts)
    return replace(
        federation,
        train=keep(rows, np.flatnonzero(~chosen)),
        test=keep(rows, np.flatnonzero(chosen)),
    )


def keep(examples: Examples, rows: NDArray[np.int64]) -> Examples:
    """Only these rows, given in rising order."""
    offsets = np.searchsorted(rows, examples.offsets).astype(np.int64)
    return Examples(examples.features[rows], examples.labels[rows], offsets)
