"""The state of every client: one tree each, in memory or in a file larger than memory.

A file holds one row a client, the tree's leaves one after another in float32, so that a client is
read and written in one piece; a note beside it says which clients and which leaves. Rows are read
and written with the calls of the operating system and not through a memory map, whose pages would
count as resident.
"""

from __future__ import annotations

import errno
import json
import math
import os
import shutil
import sys
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray

from scafflix.errors import ScafflixError

if sys.platform != "win32":
    import fcntl

NUMBER = np.dtype(np.float32)
Tree = Any


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
        leaves, self._structure = jax.tree.flatten(template)
        if any(leaf.dtype != NUMBER for leaf in leaves):
            raise ScafflixError("A store keeps float32 parameters; the model has others.")
        self.clients = clients
        self.file = file
        self._shapes = [tuple(leaf.shape) for leaf in leaves]
        self._cuts = np.cumsum([0, *(math.prod(shape) for shape in self._shapes)])
        self._rows: NDArray[np.float32] | None = None
        self._descriptor: int | None = None
        self._close: weakref.finalize[Any, Store] | None = None
        if file is None:
            self._rows = np.zeros((clients, self.width), NUMBER)
        else:
            with disk_errors(file):
                if fresh:
                    file.with_suffix(".json").unlink(missing_ok=True)
                self._open(file)

    @property
    def width(self) -> int:
        """Numbers a client."""
        return int(self._cuts[-1])

    @property
    def bytes(self) -> int:
        """The size of the whole store."""
        return self.clients * self.width * NUMBER.itemsize

    def read(self, clients: NDArray[np.int64]) -> Tree:
        """The trees of the chosen clients, stacked."""
        rows = self._read_rows(clients)
        leaves = [
            rows[:, start:stop].reshape(len(clients), *shape)
            for start, stop, shape in zip(self._cuts, self._cuts[1:], self._shapes, strict=False)
        ]
        return jax.tree.unflatten(self._structure, leaves)

    def write(self, clients: NDArray[np.int64], tree: Tree) -> None:
        """Replace the trees of the chosen clients."""
        leaves = [np.asarray(leaf) for leaf in jax.tree.leaves(tree)]
        rows = np.concatenate([leaf.reshape(len(clients), -1) for leaf in leaves], axis=1)
        if self._rows is not None:
            self._rows[clients] = rows
            return
        assert self.file is not None
        assert self._descriptor is not None
        with disk_errors(self.file):
            for client, row in zip(clients.tolist(), rows, strict=True):
                _write_all(self._descriptor, row.data.cast("B"), client * self._row_bytes)

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
        return self.width * NUMBER.itemsize

    def _read_rows(self, clients: NDArray[np.int64]) -> NDArray[np.float32]:
        if self._rows is not None:
            return self._rows[clients]
        assert self.file is not None
        assert self._descriptor is not None
        rows = np.empty((len(clients), self.width), NUMBER)
        with disk_errors(self.file):
            for client, row in zip(clients.tolist(), rows, strict=True):
                _read_all(self._descriptor, row.data.cast("B"), client * self._row_bytes)
        return rows

    def _open(self, file: Path) -> None:
        note = file.with_suffix(".json")
        mine = {"clients": self.clients, "leaves": [list(shape) for shape in self._shapes]}
        if note.exists():
            try:
                found = json.loads(note.read_text())
            except ValueError:
                raise ScafflixError(f"{note} does not describe a store; remove it.") from None
            if found != mine:
                raise ScafflixError(
                    f"The store {file} does not match the model: it holds "
                    f"{_words(found)}, but {_words(mine)} are asked for; use another folder."
                )
            if not file.exists() or file.stat().st_size != self.bytes:
                raise ScafflixError(f"The store {file} is cut short; remove it.")
        else:
            self._create(file)
            aside = note.with_suffix(".part")
            aside.write_text(json.dumps(mine))
            os.replace(aside, note)
        self._descriptor = os.open(file, os.O_RDWR)
        self._close = weakref.finalize(self, os.close, self._descriptor)

    def _create(self, file: Path) -> None:
        """Reserve the whole file now: a full disk shows before a round is lost to it."""
        file.parent.mkdir(parents=True, exist_ok=True)
        free = shutil.disk_usage(file.parent).free
        if self.bytes > free:
            raise ScafflixError(
                f"The state of {self.clients} clients takes {_gigabytes(self.bytes)} in "
                f"{file.parent}, where {_gigabytes(free)} are free."
            )
        descriptor = os.open(file, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o644)
        try:
            if self.bytes:
                os.posix_fallocate(descriptor, 0, self.bytes)
        except OSError:
            file.unlink()
            raise
        finally:
            os.close(descriptor)


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


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """A folder for this process alone; another that makes the same waits until it is made."""
    locks = folder.parent.with_name("locks")
    locks.mkdir(parents=True, exist_ok=True)
    with (locks / folder.name).open("w") as file:
        if sys.platform != "win32":
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _gigabytes(count: int) -> str:
    return f"{count / 1e9:.1f} GB"


def _words(note: Any) -> str:
    try:
        shapes = ", ".join("x".join(map(str, shape)) or "1" for shape in note["leaves"])
        return f"{note['clients']} clients with arrays of {shapes}"
    except (KeyError, TypeError):
        return "something else"
