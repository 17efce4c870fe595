"""The SQLite release of federated EMNIST and Shakespeare that FedJAX publishes.

A file holds a table ``federated_data(client_id BLOB, data BLOB, num_examples INTEGER)``. The
data of a client are zlib over a msgpack map from names to arrays. An array is a msgpack
extension that holds msgpack again: of type 1 (shape, name of the type, bytes in row-major
order) for numbers, of type 4 (shape, list of byte strings) for texts. EMNIST has ``pixels``
float32 [N, 28, 28], shares of white, and ``label`` int32 [N]; Shakespeare has ``snippets`` [N].

Nothing in a file is trusted: sizes are checked before memory is taken, and nothing is executed.
"""

from __future__ import annotations

import math
import sqlite3
import zlib
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import msgpack  # type: ignore[import-untyped]
import numpy as np
from numpy.typing import NDArray

from scafflix.core.errors import ScafflixError, reason_of
from scafflix.data.images import check_classes, from_shares
from scafflix.data.parts import Budget, Clients, Parts
from scafflix.data.recognition import is_training
from scafflix.data.text import sequences

CLIENT_LIMIT = 2**26
"""The most bytes that one client's data may take, compressed or not: 21,000 images."""

TEXT_LIMIT = 2**20
"""The most texts that one client may have."""

NUMBERS, TEXTS = 1, 4  # types of msgpack extensions
TYPES = {"float32": "<f4", "float64": "<f8", "int32": "<i4", "int64": "<i8", "uint8": "u1"}

FeaturesAndLabels = tuple[NDArray[np.uint8], NDArray[np.int8]]


def read_release(path: Path) -> Parts:
    """The clients of a file or folder; ``..._train.sqlite`` goes with ``..._test.sqlite``."""
    if path.is_dir():
        found = sorted(file for file in path.iterdir() if is_training(file))
        if len(found) > 1:
            names = ", ".join(file.name for file in found)
            raise ScafflixError(f"{path}: several training files ({names}); give one of them.")
        path = found[0]
    budget = Budget(path)
    train = read_database(path, budget)
    partner = path.with_name(path.stem.removesuffix("train") + "test" + path.suffix)
    if not is_training(path) or not partner.is_file():
        return Parts(train)
    return Parts(train, read_database(partner, budget))


def read_database(path: Path, budget: Budget) -> Clients:
    """The clients of one file, in its order."""
    clients: dict[str, FeaturesAndLabels] = {}
    with open_database(path) as connection:
        query = "SELECT client_id, data, num_examples FROM federated_data ORDER BY rowid"
        for name, data, count in connection.execute(query):
            client = name.decode("utf-8", "backslashreplace") if isinstance(name, bytes) else name
            where = f"{path}, client {client!r}"
            if not isinstance(client, str) or client in clients:
                raise ScafflixError(f"{where}: the id is not text, or occurs twice.")
            if not isinstance(data, bytes):
                raise ScafflixError(f"{where}: its data are not bytes.")
            clients[client] = read_client(unpack(data, where), count, where)
            budget.spend(clients[client][0].nbytes)
    if not clients:
        raise ScafflixError(f"{path}: the table federated_data has no clients.")
    return clients


@contextmanager
def open_database(path: Path) -> Iterator[sqlite3.Connection]:
    """A connection that only reads, once the table has been found."""
    if not path.is_file():
        raise ScafflixError(f"{path}: there is no such file.")
    try:
        # immutable: no journal beside the file is read or written
        address = f"{path.resolve().as_uri()}?mode=ro&immutable=1"
        with closing(sqlite3.connect(address, uri=True)) as connection:
            connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, CLIENT_LIMIT)
            connection.execute("PRAGMA trusted_schema = OFF")
            connection.execute("PRAGMA cell_size_check = ON")
            query = "SELECT count(*) FROM sqlite_schema WHERE type = 'table' AND name = ?"
            if connection.execute(query, ["federated_data"]).fetchone() == (0,):
                raise ScafflixError(f"{path}: there is no table federated_data.")
            yield connection
    except (sqlite3.Error, OSError, UnicodeDecodeError) as error:  # SQLite may quote odd bytes
        raise ScafflixError(f"{path}: not a readable SQLite release ({error}).") from error


def check_database(path: Path) -> None:
    """Refuse a file without the table, without clients, or broken off."""
    with open_database(path) as connection:
        fault = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
        if fault != "ok":
            raise ScafflixError(f"{path}: not a readable SQLite release ({fault}).")
        query = "SELECT client_id, data, num_examples FROM federated_data LIMIT 1"
        if connection.execute(query).fetchone() is None:
            raise ScafflixError(f"{path}: the table federated_data has no clients.")


def unpack(data: bytes, where: str) -> dict[str, NDArray[Any]]:
    """The arrays of one client."""
    stream = zlib.decompressobj()
    try:
        packed = stream.decompress(data, CLIENT_LIMIT)
        if stream.unconsumed_tail:
            raise ScafflixError(f"{where}: its data exceed {CLIENT_LIMIT} bytes.")
        if not stream.eof:
            raise ScafflixError(f"{where}: its data are cut short.")
        arrays = msgpack.unpackb(
            packed, raw=False, ext_hook=unpack_array, max_array_len=64, max_map_len=64
        )
    except zlib.error as error:
        raise ScafflixError(f"{where}: its data are not zlib ({error}).") from error
    except (ValueError, TypeError, OverflowError, RecursionError, msgpack.UnpackException) as error:
        raise ScafflixError(
            f"{where}: its data are not msgpack arrays ({reason_of(error)})."
        ) from error
    if not isinstance(arrays, dict):
        raise ScafflixError(f"{where}: its data are not a map of arrays.")
    return {name: array for name, array in arrays.items() if isinstance(array, np.ndarray)}


def unpack_array(kind: int, data: bytes) -> NDArray[Any]:
    """An array of numbers, or a list of texts as an array of bytes objects."""
    if kind == NUMBERS:
        shape, name, content = msgpack.unpackb(data, raw=True, max_array_len=64)
        if not isinstance(name, bytes) or name.decode("ascii", "replace") not in TYPES:
            raise ValueError(f"an array of type {name!r}")
        dtype = np.dtype(TYPES[name.decode()])
        if not isinstance(content, bytes) or size_of(shape) * dtype.itemsize != len(content):
            raise ValueError(f"an array of shape {shape} with another number of bytes")
        return np.frombuffer(content, dtype).reshape(shape)
    if kind == TEXTS:
        shape, texts = msgpack.unpackb(data, raw=True, max_array_len=TEXT_LIMIT)
        if not isinstance(texts, list) or not all(isinstance(text, bytes) for text in texts):
            raise ValueError("texts that are not bytes")
        if size_of(shape) != len(texts) or len(shape) != 1:
            raise ValueError(f"{len(texts)} texts of shape {shape}")
        array = np.empty(len(texts), dtype=object)
        array[:] = texts
        return array
    raise ValueError(f"an extension of type {kind}")


def size_of(shape: Any) -> int:
    """The number of entries of an array."""
    if not isinstance(shape, list) or not all(isinstance(n, int) and n >= 0 for n in shape):
        raise ValueError(f"an array of shape {shape!r}")
    return math.prod(shape)


def read_client(arrays: dict[str, NDArray[Any]], count: object, where: str) -> FeaturesAndLabels:
    """The images or the texts of one client, as many as the file says."""
    if "snippets" in arrays:
        texts = arrays["snippets"]
        if texts.dtype != object:
            raise ScafflixError(f"{where}: 'snippets' does not hold texts.")
        check_count(len(texts), count, where)
        return sequences(texts.tolist())
    if "pixels" not in arrays or "label" not in arrays:
        held = ", ".join(map(repr, arrays)) or "none"
        raise ScafflixError(
            f"{where}: the arrays are {held}; they must be 'pixels' and 'label', or 'snippets'."
        )
    pixels = arrays["pixels"]
    if pixels.dtype.kind != "f" or pixels.ndim != 3:
        raise ScafflixError(
            f"{where}: 'pixels' of type {pixels.dtype} and shape {pixels.shape}; "
            "give shares of white, [rows, 28, 28]."
        )
    check_count(len(pixels), count, where)
    return from_shares(pixels, where), check_classes(arrays["label"], len(pixels), where)


def check_count(found: int, said: object, where: str) -> None:
    """Refuse a number of examples that is not what the table says."""
    if found != said:
        raise ScafflixError(f"{where}: num_examples is {said!r}, but there are {found} examples.")
