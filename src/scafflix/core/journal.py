"""Rows of a store as they were before they changed, so that a crash can be undone.

A store may be far larger than memory, and a round changes only a few of its rows: copying it for
every checkpoint would cost more than the rounds. Instead, a row goes to a journal before it changes
for the first time after a checkpoint, and is on the disk there before it is overwritten in place.
Putting the rows of the journal back gives the store as it was at the checkpoint.
"""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scafflix.core import durable, private

HEAD = struct.Struct("<QQ")  # the client, and the checksum of its number and row


def create(file: Path) -> None:
    """An empty journal."""
    private.open_file(file, "wb").close()
    durable.flush_folder(file.parent)


def append(file: Path, clients: NDArray[np.int64], rows: NDArray[Any]) -> None:
    """Keep rows, on the disk when this returns."""
    with file.open("ab") as stream:
        for client, row in zip(clients.tolist(), rows, strict=True):
            stream.write(HEAD.pack(client, checksum(row, client)))
            stream.write(row.data)
        stream.flush()
        os.fsync(stream.fileno())


def rows_of(file: Path, width: int, dtype: np.dtype[Any]) -> Iterator[tuple[int, NDArray[Any]]]:
    """The clients and rows of a journal, without those that were not written whole: nothing had
    been overwritten then, or the checksums of the store tell."""
    size = HEAD.size + dtype.itemsize * width
    with file.open("rb") as stream:
        while len(record := stream.read(size)) == size:
            client, check = HEAD.unpack_from(record)
            row = np.frombuffer(record, dtype, offset=HEAD.size)
            if check == checksum(row, client):
                yield client, row


def checksum(row: NDArray[Any], start: int = 0) -> int:
    """Of one row."""
    return zlib.crc32(row.data, start & 0xFFFFFFFF)
