"""Files that survive a crash: the old content or the new, never a mixture, never silently wrong.

A file is plain safetensors, readable by any tool; its metadata hold facts as JSON and a checksum
over everything. It is written aside, flushed to the disk, put in place by a rename, and the
folder flushed, so that what was reported as written is there after a loss of power.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open

from scafflix.errors import ScafflixError

if sys.platform != "win32":
    import fcntl

Arrays = tuple[NDArray[Any], ...]
Facts = dict[str, Any]  # what JSON can hold
Hook = Callable[[str], None]  # told of every moment at which a crash would matter

SUFFIX = ".safetensors"
_LETTERS = {"f": "F", "i": "I", "u": "U"}  # of NumPy's types in safetensors


class DamagedError(ScafflixError):
    """A file that does not hold what was written."""


def quiet(moment: str) -> None:
    """The hook of everyday use."""


def write(path: Path, facts: Facts, arrays: Sequence[NDArray[Any]], hook: Hook = quiet) -> None:
    """Replace the file by these facts and arrays, without another copy of them in memory."""
    tensors = {f"{k:06d}": np.ascontiguousarray(array) for k, array in enumerate(arrays)}
    text = json.dumps(facts, allow_nan=False)
    note = {"facts": text, "sha256": _checksum(text, tensors)}
    header: dict[str, Any] = {"__metadata__": note}
    end = 0
    for name, array in tensors.items():
        first, end = end, end + array.nbytes
        shape, kind = list(array.shape), _kind(array.dtype)
        header[name] = {"dtype": kind, "shape": shape, "data_offsets": [first, end]}
    head = json.dumps(header).encode()
    head += b" " * (-len(head) % 8)
    buffers = [_bytes(array) for array in tensors.values()]
    put(path, (len(head).to_bytes(8, "little"), head, *buffers), hook)


def put(path: Path, content: Iterable[bytes | memoryview], hook: Hook = quiet) -> None:
    """Replace a file by these bytes."""
    aside = path.with_name(f".{path.name}.part")
    hook(f"before {path.name}")
    try:
        with aside.open("wb") as file:
            file.writelines(content)
            file.flush()
            os.fsync(file.fileno())
        hook(f"aside {path.name}")
        os.replace(aside, path)
        flush_folder(path.parent)
    except OSError as error:
        with suppress(OSError):
            aside.unlink(missing_ok=True)  # on a full disk, its place is wanted
        raise ScafflixError(f"{path} cannot be written: {error.strerror}.") from None
    hook(f"after {path.name}")


def append(path: Path, line: str, hook: Hook = quiet) -> None:
    """Add a line to a journal, on the disk when this returns."""
    hook(f"before {path.name}")
    try:
        with path.open("a") as file:
            file.write(line + "\n")
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise ScafflixError(f"{path} cannot be written: {error.strerror}.") from None
    hook(f"after {path.name}")


def read(path: Path, advice: str = "") -> tuple[Facts, Arrays] | None:
    """What was written last; None where nothing was; with advice for when it is damaged."""
    try:
        with safe_open(path, framework="numpy") as file:
            note = file.metadata()
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        whole = note["sha256"] == _checksum(note["facts"], tensors)
        facts = json.loads(note["facts"])
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ScafflixError(f"{path} cannot be read: {error.strerror or error}.") from None
    except (ValueError, KeyError, TypeError, SafetensorError):
        whole = False
    if not whole:
        raise DamagedError(f"{path} is damaged: it does not match its checksum.{advice}")
    return facts, tuple(tensors[name] for name in sorted(tensors))


def remove(path: Path) -> None:
    """Remove a file that nothing refers to any more."""
    path.unlink(missing_ok=True)


def new_folder(folder: Path) -> Path:
    """The folder, made if it is not there."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ScafflixError(f"{folder} cannot be written: {error.strerror}.") from None
    return folder


@contextmanager
def locked(folder: Path, patience: float = 600.0) -> Iterator[None]:
    """The folder for this process alone; another that has it is given some seconds to end."""
    if sys.platform == "win32":
        yield
        return
    until = time.monotonic() + patience
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() >= until:
                    raise ScafflixError(
                        f"{folder} is in use by another process; wait for it, or stop it first."
                    ) from None
                time.sleep(0.05)
        yield
    finally:
        os.close(descriptor)


def _checksum(text: str, tensors: Mapping[str, NDArray[Any]]) -> str:
    found = hashlib.sha256(text.encode())
    for name in sorted(tensors):
        array = tensors[name]
        found.update(f"{name} {array.dtype} {array.shape}".encode())
        found.update(_bytes(array))
    return found.hexdigest()


def _kind(dtype: np.dtype[Any]) -> str:
    """Such as F32."""
    return "BOOL" if dtype.kind == "b" else f"{_LETTERS[dtype.kind]}{8 * dtype.itemsize}"


def _bytes(array: NDArray[Any]) -> memoryview:
    """The array's own memory."""
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).data


def flush_folder(folder: Path) -> None:
    """Wait until the names in a folder are on the disk."""
    if os.name != "posix":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
