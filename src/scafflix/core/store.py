"""The state of every client: one tree each, in memory or in a file larger than memory.

A file holds one row a client, the tree's leaves one after another and zeros up to a multiple of
64 bytes, so that a client is read and written in one piece; a note beside it says which
clients and which leaves. Rows are read and written with the calls of the operating system and not
through a memory map, whose pages would count as resident. Where several processes run together,
each holds the rows of its share of the clients: of k processes, the j-th holds the clients j,
j + k, j + 2k and so on.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax.experimental.multihost_utils import process_allgather
from numpy.typing import NDArray

from scafflix.core import durable, journal, private
from scafflix.core.durable import DamagedError
from scafflix.core.errors import ScafflixError
from scafflix.core.journal import checksum
from scafflix.core.layout import Layout, Tree
from scafflix.core.sharing import aligned

TYPES = (np.float32, np.float64)


class Store:
    """A tree for each client; all are zero at first.

    >>> store = Store({"w": np.zeros((2, 3), np.float32)}, clients=5)
    >>> store.write(np.array([3]), {"w": np.ones((1, 2, 3), np.float32)})
    >>> store.read(np.array([0, 3]))["w"].sum(axis=(1, 2)).tolist()
    [0.0, 6.0]
    """

    def __init__(
        self, template: Tree, clients: int, file: Path | None = None, *, fresh: bool = False
    ) -> None:
        types = {np.dtype(leaf.dtype) for leaf in jax.tree.leaves(template)}
        if len(types) != 1 or not types <= set(map(np.dtype, TYPES)):
            raise ScafflixError(
                "The parameters of a model must be all float32 or all float64; these are "
                f"{', '.join(sorted(map(str, types))) or 'none'}."
            )
        (self.dtype,) = types
        self.clients = clients
        self.file = file
        self.layout = Layout.of(template)
        self.width = self.layout.width  # numbers a client
        self._step, self._first = jax.process_count(), jax.process_index()
        self.held = len(range(self._first, clients, self._step))  # rows of this process
        self.known: dict[str, Any] = {}  # what was found out about its points
        self._rows: NDArray[Any] | None = None
        self._checks: NDArray[np.uint32] | None = None  # of the rows of a file that is written
        self._journal: Path | None = None
        self._unchanged = np.zeros(self.held, bool)  # since the last checkpoint
        self._descriptor: int | None = None
        self._close: weakref.finalize[Any, Store] | None = None
        if file is None:
            # filled now: memory that is not there shows at the start, and no round waits for it
            self._rows = np.full((self.held, self.width), 0, self.dtype)
        else:
            with disk_errors(file):
                if fresh:
                    file.with_suffix(".json").unlink(missing_ok=True)
                    zero = checksum(np.zeros(self.width, self.dtype))
                    self._checks = np.full(self.held, zero, np.uint32)
                self._open(file)

    @property
    def bytes(self) -> int:
        """The size of what this process holds."""
        return self.held * self._row_bytes

    def read(self, clients: NDArray[np.int64]) -> Tree:
        """The trees of the chosen clients, stacked."""
        return self.layout.tree(self.read_rows(clients))

    def write(self, clients: NDArray[np.int64], tree: Tree) -> None:
        """Replace the trees of the chosen clients."""
        rows = np.zeros((len(clients), self.width), self.dtype)
        jax.tree.map(np.copyto, self.layout.tree(rows), tree)
        self.write_rows(clients, rows)

    def read_rows(
        self, clients: NDArray[np.int64], room: NDArray[Any] | None = None
    ) -> NDArray[Any]:
        """The chosen clients, a row each. Several processes ask together, for the same."""
        if self._step == 1:
            return self._read_held(clients, room)
        mine = clients % self._step == self._first
        rows = np.zeros((len(clients), self.width), self.dtype)
        rows[mine] = self._read_held(clients[mine] // self._step)
        return process_allgather(rows).sum(axis=0)

    def write_rows(self, clients: NDArray[np.int64], rows: NDArray[Any]) -> None:
        """Replace the rows of the chosen clients, as far as this process holds them."""
        mine = clients % self._step == self._first
        places, rows = clients[mine] // self._step, rows[mine] if self._step > 1 else rows
        if self._rows is not None:
            self._rows[places] = rows
            return
        assert self.file is not None
        with disk_errors(self.file):
            if self._journal is not None:
                changing = places[self._unchanged[places]]
                journal.append(self._journal, changing, self._read_held(changing))
                self._unchanged[changing] = False
            for place, row in zip(places.tolist(), rows, strict=True):
                self._write_row(place, row)

    def snapshot(self) -> NDArray[Any]:
        """What a checkpoint must hold to find the store as it is now: the rows themselves, or of
        a file, which is on the disk when this returns, the checksum of each."""
        if self._rows is not None:
            return self._rows
        self.sync()
        assert self._checks is not None
        return self._checks

    def protect(self, file: Path | None) -> None:
        """From now on, rows of a store on the disk go to a journal before they first change."""
        if self.file is not None and file is not None:
            with disk_errors(file):
                journal.create(file)
            self._journal = file
            self._unchanged[:] = True

    def restore(self, kept: NDArray[Any], journals: Sequence[Path] = ()) -> None:
        """As the store was at a snapshot, by the journals since, the newest first.

        A file is read through and compared with its checksums, as far as these go.
        """
        if self._rows is not None:
            self._rows[:] = kept
            return
        assert self.file is not None
        self._checks = np.zeros(self.held, np.uint32)
        self._checks[: len(kept)] = kept
        with disk_errors(self.file):
            for file in journals:
                for place, row in journal.rows_of(file, self.width, self.dtype):
                    self._write_row(place, row, known=True)
            self.sync()
            for place, check in enumerate(kept.tolist()):
                if checksum(self._read_held(np.array([place]))[0]) != check:
                    raise DamagedError(
                        f"{self.file} is damaged: its row {place} does not match its checksum."
                    )

    def sync(self) -> None:
        """Wait until everything written is on the disk."""
        if self._descriptor is not None:
            assert self.file is not None
            with disk_errors(self.file):
                os.fsync(self._descriptor)

    def close(self) -> None:
        """Give the file back; a store that nobody holds any more does so by itself."""
        if self._close is not None:
            self._close()

    @property
    def _row_bytes(self) -> int:
        return self.width * self.dtype.itemsize

    def _read_held(
        self, places: NDArray[np.int64], room: NDArray[Any] | None = None
    ) -> NDArray[Any]:
        rows = aligned((len(places), self.width), self.dtype) if room is None else room
        if self._rows is not None:
            return np.take(self._rows, places, axis=0, out=rows, mode="clip")
        assert self.file is not None
        assert self._descriptor is not None
        with disk_errors(self.file):
            for place, row in zip(places.tolist(), rows, strict=True):
                _read_all(self._descriptor, row.data.cast("B"), place * self._row_bytes)
        return rows

    def _write_row(self, place: int, row: NDArray[Any], *, known: bool = False) -> None:
        assert self._descriptor is not None
        if self._checks is not None and not known:
            self._checks[place] = checksum(row)
        _write_all(self._descriptor, row.data.cast("B"), place * self._row_bytes)

    def _open(self, file: Path) -> None:
        note = file.with_suffix(".json")
        shapes = [list(shape) for shape in self.layout.shapes]
        mine = {"clients": self.clients, "leaves": shapes}
        if self.dtype != np.float32:
            mine["type"] = self.dtype.name
        if self._step > 1:
            mine["process"] = f"{self._first} of {self._step}"
        if note.exists():
            try:
                found = json.loads(note.read_text())
            except ValueError:
                raise DamagedError(f"{note} does not describe a store.") from None
            if found != mine:
                raise DamagedError(
                    f"The store {file} does not match the model: it holds "
                    f"{_words(found)}, but {_words(mine)} are asked for; use another folder."
                )
            if not file.exists() or file.stat().st_size != self.bytes:
                raise DamagedError(f"The store {file} is cut short.")
        else:
            self._create(file)
            durable.put(note, [json.dumps(mine).encode()])
        self._descriptor = os.open(file, os.O_RDWR)
        self._close = weakref.finalize(self, os.close, self._descriptor)

    def _create(self, file: Path) -> None:
        """Reserve the whole file now: a full disk shows before a round is lost to it."""
        private.make_folder(file.parent)
        free = shutil.disk_usage(file.parent).free
        if self.bytes > free:
            raise ScafflixError(
                f"The state of {self.held} clients takes {_gigabytes(self.bytes)} in "
                f"{file.parent}, where {_gigabytes(free)} are free."
            )
        with private.open_file(file, "wb") as made:
            try:
                if self.bytes:
                    os.posix_fallocate(made.fileno(), 0, self.bytes)
            except OSError:
                file.unlink()
                raise


def _write_all(descriptor: int, data: memoryview, offset: int) -> None:
    while data:
        written = os.pwrite(descriptor, data, offset)
        data, offset = data[written:], offset + written


def _read_all(descriptor: int, data: memoryview, offset: int) -> None:
    while data:
        count = os.preadv(descriptor, [data], offset)
        if not count:
            raise OSError(errno.EIO, "the file ends too early")
        data, offset = data[count:], offset + count


@contextmanager
def disk_errors(file: Path) -> Iterator[None]:
    """What the operating system refuses, in one sentence."""
    try:
        yield
    except OSError as error:
        raise ScafflixError(f"{file} cannot be used: {error.strerror or error}.") from None


def _gigabytes(count: int) -> str:
    return f"{count / 1e9:.1f} GB"


def _words(note: Any) -> str:
    try:
        shapes = ", ".join("x".join(map(str, shape)) or "1" for shape in note["leaves"])
        return f"{note['clients']} clients with arrays of {shapes}"
    except (KeyError, TypeError):
        return "something else"
