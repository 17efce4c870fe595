"""Files that survive a crash: the old content or the new, never a mixture, never silently wrong.

A file is plain safetensors, readable by any tool; its metadata hold facts as JSON and a checksum
over everything. It is written aside, flushed to the disk, put in place by a rename, and the
folder flushed, so that what was reported as written is there after a loss of power. Any number of
processes may write one path: each aside has a name of its own, and the last rename stays.
"""

from __future__ import annotations

import glob
import hashlib
import json
import math
import os
import secrets
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

import numpy as np
from filelock import lock_descriptor
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open

from scafflix.core import private
from scafflix.core.errors import ScafflixError

Arrays = tuple[NDArray[Any], ...]
Facts = dict[str, Any]  # what JSON can hold
Hook = Callable[[str], None]  # told of every moment at which a crash would matter

SUFFIX = ".safetensors"
_LETTERS = {"f": "F", "i": "I", "u": "U"}  # of NumPy's types in safetensors


class DamagedError(ScafflixError):
    """A file that does not hold what was written."""


def quiet(moment: str) -> None:
    """The hook of everyday use."""


def write(
    path: Path,
    facts: Facts,
    arrays: Sequence[NDArray[Any]],
    hook: Hook = quiet,
    names: Sequence[str] = (),
) -> None:
    """Replace the file by these facts and arrays, without another copy of them in memory.

    Without names for the arrays, their numbers are.
    """
    keys = names or [f"{k:06d}" for k in range(len(arrays))]
    tensors = {key: np.asarray(a, order="C") for key, a in zip(keys, arrays, strict=True)}
    note = {"facts": json.dumps(facts, allow_nan=False)}
    note |= {"names": json.dumps(names)} if names else {}
    note["sha256"] = _checksum(note, tensors)
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


def check_new(path: Path, *, force: bool) -> None:
    """Refuse a file that is there, unless forced, and what is no place for a file."""
    if path.is_dir():
        raise ScafflixError(f"{path} is a folder; give a file to write to.")
    if path.exists() and not force:
        raise ScafflixError(f"{path} exists; choose another, or use --force.")


def put(path: Path, content: Iterable[bytes | memoryview], hook: Hook = quiet) -> None:
    """Replace a file by these bytes."""
    with replacing(path, hook) as file:
        file.writelines(content)


@contextmanager
def replacing(path: Path, hook: Hook = quiet) -> Iterator[IO[bytes]]:
    """A file aside to write into, which takes the place of this one when all is written."""
    hook(f"before {path.name}")
    try:
        _clear_asides(path)
        with _aside(path) as file:
            try:
                yield file
                file.flush()
                os.fsync(file.fileno())
                hook(f"aside {path.name}")
                os.replace(file.name, path)
            except BaseException:
                with suppress(OSError):
                    os.unlink(file.name)  # on a full disk, its place is wanted
                raise
        flush_folder(path.parent)
    except OSError as error:
        raise ScafflixError(f"{path} cannot be written: {error.strerror}.") from None
    hook(f"after {path.name}")


def _aside(path: Path) -> IO[bytes]:
    """A new file beside the path, locked as long as it is open: its writer is alive."""
    while True:
        name = path.with_name(f".{path.name}.{secrets.token_hex(8)}.part")
        file = private.open_file(name, "xb")
        # who clears may have come between the making and the lock, and has removed it then
        if lock_descriptor(file.fileno(), blocking=False) and os.fstat(file.fileno()).st_nlink:
            return file
        file.close()


def _clear_asides(path: Path) -> None:
    """Remove what writers of this path left who were killed."""
    for left in path.parent.glob(f".{glob.escape(path.name)}.*.part"):
        with suppress(OSError), left.open("rb") as file:
            if lock_descriptor(file.fileno(), blocking=False):
                left.unlink(missing_ok=True)


def append(path: Path, line: str, hook: Hook = quiet) -> None:
    """Add a line to a journal, on the disk when this returns."""
    hook(f"before {path.name}")
    try:
        with private.open_file(path, "a") as file:
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
        whole = note["sha256"] == _checksum(note, tensors)
        facts = json.loads(note["facts"])
        arrays = [tensors[key] for key in json.loads(note.get("names", "null")) or sorted(tensors)]
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ScafflixError(f"{path} cannot be read: {error.strerror or error}.") from None
    except (ValueError, KeyError, TypeError, SafetensorError):
        whole = False
    if not whole:
        raise DamagedError(f"{path} is damaged: it does not match its checksum.{advice}")
    return facts, tuple(arrays)


def remove(path: Path) -> None:
    """Remove a file that nothing refers to any more."""
    path.unlink(missing_ok=True)


def new_folder(folder: Path) -> Path:
    """The folder, made for its owner alone if it is not there."""
    try:
        return private.make_folder(folder)
    except OSError as error:
        raise ScafflixError(f"{folder} cannot be written: {error.strerror}.") from None


@contextmanager
def locked(folder: Path, patience: float = 600.0) -> Iterator[int]:
    """The folder for this process alone; another that has it is given some seconds to end.

    Yields the descriptor that holds the folder.
    """
    if os.name != "posix":  # elsewhere a folder cannot be opened
        yield -1
        return
    until = time.monotonic() + patience
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        while not lock_descriptor(descriptor, blocking=False):
            if time.monotonic() >= until:
                raise ScafflixError(
                    f"{folder} is in use by another process; wait for it, or stop it first."
                )
            time.sleep(0.05)
        yield descriptor
    finally:
        os.close(descriptor)


@contextmanager
def making(path: Path) -> Iterator[None]:
    """While a file or folder of a cache is looked for and made: who asks for the same waits."""
    # beside it, for what is locked must not be replaced
    with locked(new_folder(path.parent.with_name("locks") / path.name), patience=math.inf):
        yield


def _checksum(note: Mapping[str, str], tensors: Mapping[str, NDArray[Any]]) -> str:
    found = hashlib.sha256(f"{note['facts']}{note.get('names', '')}".encode())
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
