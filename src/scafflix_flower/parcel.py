"""A message on its way between a node's process and its worker, over a socket of these two alone.

A parcel holds scalars, lists of arrays by name, and the settings of the run. An array is the bytes
of an .npy file. On the socket come the length of a head, the head as JSON, and the arrays' bytes.
Nothing here is executed or unpickled, and what is too large is not read.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping, Sequence
from socket import socket
from typing import Any, NamedTuple

LARGEST_HEAD = 16 * 2**20  # bytes of all scalars and of the settings
LARGEST = 2**34  # bytes of all arrays of a message
LENGTH = struct.Struct(">Q")

Arrays = Sequence[bytes | memoryview]


class ParcelError(Exception):
    """What came over the socket is not a parcel, or too large."""


class Parcel(NamedTuple):
    """A message, not yet checked.

    `scalars` is None, and so is a list of arrays, if something else was sent in its place.
    """

    scalars: Mapping[str, Any] | None
    arrays: Mapping[str, Arrays | None] = {}
    settings: str = ""  # of the run
    error: str = ""  # instead of all this: why there is no reply
    crashed: bool = False  # for the worker ended; it does not say so itself


def send(line: socket, parcel: Parcel) -> None:
    """Send a parcel; whoever is at the other end may be gone."""
    sizes = {
        name: None if arrays is None else [len(array) for array in arrays]
        for name, arrays in parcel.arrays.items()
    }
    told = [parcel.scalars, sizes, parcel.settings, parcel.error]
    head = json.dumps(told).encode()
    _check(len(head), sizes)
    line.sendall(LENGTH.pack(len(head)) + head)
    for arrays in parcel.arrays.values():
        for array in arrays or ():
            line.sendall(array)


def receive(line: socket) -> Parcel | None:
    """The next parcel; None if the other end is gone."""
    found = _read(line, LENGTH.size)
    if found is None:
        return None
    (length,) = LENGTH.unpack(found)
    _check(length, {})
    head = _read(line, length)
    if head is None:
        return None
    try:
        scalars, sizes, settings, error = json.loads(bytes(head))
        _check(length, sizes)
    except (ValueError, TypeError, AttributeError) as wrong:
        raise ParcelError(f"The head of a message cannot be read: {wrong}.") from None
    arrays: dict[str, Arrays | None] = {}
    for name, lengths in sizes.items():
        parts = [_read(line, size) for size in lengths or ()]
        if any(part is None for part in parts):
            return None
        arrays[name] = None if lengths is None else [part for part in parts if part is not None]
    return Parcel(scalars, arrays, settings, error)


def _check(head: int, sizes: Mapping[str, Sequence[int] | None]) -> None:
    if head > LARGEST_HEAD:
        raise ParcelError(f"A message has {head} bytes of scalars; at most {LARGEST_HEAD} may be.")
    total = sum(sum(lengths or ()) for lengths in sizes.values())
    if total > LARGEST:
        raise ParcelError(f"A message has {total} bytes of arrays; at most {LARGEST} are allowed.")


def _read(line: socket, length: int) -> memoryview | None:
    """This many bytes; memory is taken only for what has come, up to a piece more."""
    found = bytearray()
    while len(found) < length:
        piece = line.recv(min(length - len(found), 2**20))
        if not piece:
            return None
        found += piece
    return memoryview(found)
