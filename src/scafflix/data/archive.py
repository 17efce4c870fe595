"""NumPy archives: ``.npz`` with ``features`` or ``x``, ``labels`` or ``y``, maybe ``client``."""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from scafflix.data.admission import admit_features, admit_labels
from scafflix.data.rows import Rows
from scafflix.errors import ScafflixError


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


@contextmanager
def open_archive(path: Path) -> Iterator[np.lib.npyio.NpzFile]:
    """The archive, whose arrays are read where they are asked for, within the context."""
    try:
        # Opened here, because NumPy leaves the file open when it turns out to be no archive.
        with path.open("rb") as file:
            archive = np.load(file, allow_pickle=False)
            if not isinstance(archive, np.lib.npyio.NpzFile):
                raise ScafflixError(f"{path}: one array, not an archive; save it with numpy.savez.")
            yield archive
    except FileNotFoundError as error:
        raise ScafflixError(f"{path}: there is no such file.") from error
    except (
        OSError,
        EOFError,
        ValueError,
        KeyError,
        MemoryError,
        NotImplementedError,
        zipfile.BadZipFile,
        zlib.error,
    ) as error:
        reason = " ".join(str(error).split())[:200].rstrip(".") or type(error).__name__
        raise ScafflixError(f"{path}: not a readable .npz archive ({reason}).") from error


def one_of(path: Path, archive: np.lib.npyio.NpzFile, name: str, short: str) -> NDArray[np.generic]:
    """The array under its name or its short name."""
    for key in (name, short):
        if key in archive.files:
            array: NDArray[np.generic] = archive[key]
            return array
    held = ", ".join(repr(key) for key in archive.files) or "none"
    raise ScafflixError(f"{path}: there is no array {name!r} or {short!r}; the arrays are {held}.")
