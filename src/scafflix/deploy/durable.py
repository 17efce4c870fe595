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
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load, save

from scafflix.errors import ScafflixError

if sys.platform != "win32":
    import fcntl

Arrays = tuple[NDArray[Any], ...]
Facts = dict[str, Any]  # what JSON can hold
Hook = Callable[[str], None]  # told of every moment at which a crash would matter

SUFFIX = ".safetensors"


class DamagedError(ScafflixError):
    """A file that does not hold what was written."""


def quiet(moment: str) -> None:
    """The hook of everyday use."""


def write(path: Path, facts: Facts, arrays: Sequence[NDArray[Any]], hook: Hook = quiet) -> None:
    """Replace the file by these facts and arrays."""
    tensors = {f"{k:06d}": np.ascontiguousarray(array) for k, array in enumerate(arrays)}
    text = json.dumps(facts, allow_nan=False)
    note = {"facts": text, "sha256": _checksum(text, tensors)}
    put(path, save(tensors, note), hook)


def put(path: Path, content: bytes, hook: Hook = quiet) -> None:
    """Replace a file by these bytes."""
    aside = path.with_name(f".{path.name}.part")
    hook(f"before {path.name}")
    try:
        with aside.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        hook(f"aside {path.name}")
        os.replace(aside, path)
        _flush_folder(path.parent)
    except OSError as error:
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


def read(path: Path) -> tuple[Facts, Arrays] | None:
    """What was written last; None where nothing was."""
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ScafflixError(f"{path} cannot be read: {error.strerror}.") from None
    try:
        length = int.from_bytes(content[:8], "little")
        note = json.loads(content[8 : 8 + length])["__metadata__"]
        tensors = load(content)
        whole = note["sha256"] == _checksum(note["facts"], tensors)
        facts = json.loads(note["facts"])
    except (ValueError, KeyError, TypeError, SafetensorError):
        whole = False
    if not whole:
        raise DamagedError(
            f"{path} is damaged: it does not match its checksum. Move it away; a client without "
            "its state comes back by the server's mirror or by a new epoch."
        )
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
    """The folder for this process alone: Flower may run a handler twice at the same time."""
    until = time.monotonic() + patience
    with (folder / ".lock").open("w") as file:
        while sys.platform != "win32":
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > until:
                    raise ScafflixError(
                        f"{folder} is in use by another process; stop that one first."
                    ) from None
                time.sleep(0.05)
        yield


def _checksum(text: str, tensors: Mapping[str, NDArray[Any]]) -> str:
    found = hashlib.sha256(text.encode())
    for name in sorted(tensors):
        array = tensors[name]
        found.update(f"{name} {array.dtype} {array.shape}".encode())
        found.update(np.ascontiguousarray(array).data if array.size else b"")
    return found.hexdigest()


def _flush_folder(folder: Path) -> None:
    if os.name != "posix":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
