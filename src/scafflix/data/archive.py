"""NumPy archives: ``.npz`` with ``features`` or ``x``, ``labels`` or ``y``, maybe ``client``.

Nothing in a file is trusted: NumPy's own reader takes the memory that a header claims before it
looks whether the bytes are there, so an array is read here.
"""

from __future__ import annotations

import math
import sys
import warnings
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from scafflix.core.errors import ScafflixError, reason_of
from scafflix.data.admission import BYTE_LIMIT, TEXT_LIMIT, admit_features, admit_labels
from scafflix.data.parts import Budget
from scafflix.data.rows import Rows

CHUNK = 2**20
METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)


def read_archive(path: Path) -> Rows:
    """The rows of the archive; objects, which would need pickle, are refused.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder, "small.npz")
    ...     np.savez(path, x=[[1, 2]], y=[0], client=["a"])
    ...     rows = read_archive(path)
    >>> rows.features.tolist(), rows.clients.tolist()
    ([[1.0, 2.0]], ['a'])
    """
    with open_archive(path) as archive:
        features = one_of(path, archive, "features", "x")
        labels = one_of(path, archive, "labels", "y")
        client = archive["client"] if "client" in archive.files else None
    matrix = admit_features(features, f"{path}, features")
    rows = matrix.shape[0]
    return Rows(
        matrix,
        admit_labels(labels, rows, f"{path}, labels"),
        None if client is None else admit_labels(client, rows, f"{path}, client"),
    )


class Archive:
    """An open archive, whose arrays are read where they are asked for."""

    def __init__(self, path: Path, members: zipfile.ZipFile) -> None:
        self.members = members
        self.budget = Budget(path)

    @property
    def files(self) -> list[str]:
        """The names of the arrays."""
        inside = self.members.namelist()
        return [name.removesuffix(".npy") for name in inside if name.endswith(".npy")]

    def __getitem__(self, name: str) -> NDArray[np.generic]:
        """One array, if the file has room for it."""
        member = self.members.getinfo(f"{name}.npy")
        self.budget.spend(member.file_size)
        if member.compress_type not in METHODS:
            raise ValueError("a compression that NumPy does not write")
        with self.members.open(member) as file:
            return read_array(file, member.file_size)


@contextmanager
def open_archive(path: Path) -> Iterator[Archive]:
    """The archive; whatever its bytes do to the readers is said in one sentence."""
    try:
        with zipfile.ZipFile(path) as members:
            yield Archive(path, members)
    except ScafflixError:
        raise
    except FileNotFoundError as error:
        raise ScafflixError(f"{path}: there is no such file.") from error
    except Exception as error:  # zip, four compressions and the headers each have their own
        reason = "one array, not an archive; save it with numpy.savez"
        if not holds_one_array(path):
            reason = reason_of(error)
        raise ScafflixError(f"{path}: not a readable .npz archive ({reason}).") from error


def holds_one_array(path: Path) -> bool:
    """Whether the file is what `numpy.save` writes."""
    try:
        with path.open("rb") as file:
            return file.read(len(npy.MAGIC_PREFIX)) == npy.MAGIC_PREFIX
    except OSError:
        return False


def one_of(path: Path, archive: Archive, name: str, short: str) -> NDArray[np.generic]:
    """The array under its name or its short name."""
    for key in (name, short):
        if key in archive.files:
            return archive[key]
    held = ", ".join(map(repr, archive.files)) or "none"
    raise ScafflixError(f"{path}: there is no array {name!r} or {short!r}; the arrays are {held}.")


def read_array(file: IO[bytes], size: int) -> NDArray[np.generic]:
    """An array in NumPy's format from a stream of so many bytes, or a ValueError.

    >>> import io
    >>> stream = io.BytesIO()
    >>> np.save(stream, np.arange(3))
    >>> read_array(io.BytesIO(stream.getvalue()), len(stream.getvalue())).tolist()
    [0, 1, 2]
    """
    shape, fortran, dtype = read_header(file)
    if dtype.hasobject:
        raise ValueError("Object arrays, which would need pickle, are not read")
    entries = math.prod(shape)
    if entries * dtype.itemsize > BYTE_LIMIT:
        raise ValueError(f"an array of {entries * dtype.itemsize} bytes, more than {BYTE_LIMIT}")
    if dtype.kind in "SU" and dtype.itemsize > 4 * TEXT_LIMIT:
        raise ValueError(f"texts of more than {TEXT_LIMIT} letters")
    if entries * dtype.itemsize != size - file.tell():
        raise ValueError(f"an array of shape {shape} with another number of bytes")
    content = bytearray()
    while chunk := file.read(CHUNK):
        content += chunk
    if len(content) != entries * dtype.itemsize:
        raise ValueError("an array that is cut short")
    if dtype.kind == "U" and entries:
        letters = np.frombuffer(content, np.dtype(np.uint32).newbyteorder(dtype.byteorder))
        if letters.max() > sys.maxunicode:
            raise ValueError("texts with invalid characters")
    return np.frombuffer(content, dtype).reshape(shape, order="F" if fortran else "C")


def read_header(file: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Shape, order and type of an array; a header is a literal, so nothing is evaluated."""
    version = npy.read_magic(file)
    readers = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}
    if version not in readers:
        raise ValueError(f"version {version} of NumPy's format")
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # about headers that Python 2 wrote
        shape, fortran, dtype = readers[version](file)
    if any(length < 0 for length in shape):
        raise ValueError(f"an array of shape {shape}")
    return shape, fortran, dtype
