"""Client states on their way to and from the store while a round computes."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import jax
import numpy as np
from jax import Array
from numpy.typing import NDArray

from scafflix.core.sharing import aligned, pieces
from scafflix.core.store import Store

Clients = NDArray[np.int64]
Rows = NDArray[Any]


class Ahead:
    """One thread reads what the next cohort needs and writes what the last one left, in the order
    asked for. Processes that share a store read together, and so without a thread."""

    def __init__(self, stores: Sequence[Store], states: Store | None) -> None:
        self._stores, self._states = stores, states  # what rounds read, what they write
        self._pool = ThreadPoolExecutor(1) if jax.process_count() == 1 else None
        self._reading: tuple[Clients, Future[list[Rows]]] | None = None
        self._left: tuple[Clients, Array | Rows] | None = None
        self._writing: Future[None] | None = None
        self._buffers: deque[list[Rows]] = deque()

    def start(self, clients: Clients) -> None:
        """Begin to read."""
        if self._pool is not None:
            self._reading = clients, self._pool.submit(self._read, clients)

    def take(self, clients: Clients) -> list[Rows]:
        """The rows of the clients in every store."""
        if self._reading is None:
            return self._read(clients)
        asked, reading = self._reading
        assert (asked == clients).all()
        found, self._reading = reading.result(), None
        if self._left is not None:  # read before these were written
            before, rows = self._left
            both, here, there = np.intersect1d(clients, before, return_indices=True)
            if len(both):
                place = self._stores.index(self._states)
                found[place][here] = np.asarray(rows)[there]
        return found

    def put(self, clients: Clients, rows: Array | Rows) -> None:
        """Write the rows of a cohort; those behind its last client only filled up a device."""
        if self._pool is None:
            self._write(clients, rows)
            return
        self.settle()
        self._left = clients, rows
        self._writing = self._pool.submit(self._write, clients, rows)

    def settle(self) -> None:
        """Wait until everything is written."""
        if self._writing is not None:
            self._writing.result()

    def close(self) -> None:
        """Without waiting for what nobody needs."""
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)

    def _read(self, clients: Clients) -> list[Rows]:
        """Into two buffers, used alternately: when one is used again, its round has ended."""
        if len(self._buffers) < 2:
            self._buffers.append(
                [aligned((len(clients), store.width), store.dtype) for store in self._stores]
            )
        self._buffers.rotate()
        buffers = zip(self._stores, self._buffers[0], strict=True)
        return [store.read_rows(clients, buffer) for store, buffer in buffers]

    def _write(self, clients: Clients, rows: Array | Rows) -> None:
        assert self._states is not None
        for place, some in pieces(rows):
            mine = clients[place]
            self._states.write_rows(mine, some[: len(mine)])
