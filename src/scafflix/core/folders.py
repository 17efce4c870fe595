"""Folders that are written whole or not at all."""

from __future__ import annotations

import os
import re
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from scafflix.core import durable
from scafflix.core.errors import ScafflixError


def file_name(words: str) -> str:
    """Words that may hold a path, as the name of one file or folder.

    >>> file_name("own/timid.py:timid-0.5")
    'own_timid.py_timid-0.5'
    """
    return re.sub(r"[^A-Za-z0-9._=-]+", "_", words)[:100]


def check_new_folder(folder: str | Path, *, force: bool = False) -> None:
    """Refuse a folder that cannot be written or, unless forced, that holds something."""
    folder = Path(folder)
    there = next(path for path in (folder.absolute(), *folder.absolute().parents) if path.exists())
    if there.is_dir() and not os.access(there, os.W_OK):
        raise ScafflixError(f"{folder} cannot be written: no permission to write in {there}.")
    if not there.is_dir() and there != folder.absolute():
        raise ScafflixError(f"{folder} cannot be written: {there} is a file.")
    if folder.exists() and not folder.is_dir():
        raise ScafflixError(f"{folder} is a file; give a folder to write to.")
    if not force and folder.exists() and any(folder.iterdir()):
        raise ScafflixError(f"{folder} exists and is not empty; choose another, or use --force.")


@contextmanager
def whole_folder(folder: str | Path, *, force: bool = False) -> Iterator[Path]:
    """A folder aside to write into, put in place when all is written and removed on failure.

    With `force`, files of the same name are replaced and others stay.
    """
    folder = Path(folder)
    check_new_folder(folder, force=force)
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        partial = folder.with_name(f".{folder.name}.{secrets.token_hex(4)}")
        partial.mkdir()
    except OSError as error:
        raise ScafflixError(f"{folder} cannot be written: {error.strerror}.") from None
    try:
        yield partial
        _flush(partial)
        if folder.exists() and any(folder.iterdir()):
            _move_into(partial, folder)
        else:
            os.replace(partial, folder)
        durable.flush_folder(folder.parent)
    except OSError as error:
        raise ScafflixError(f"{folder} cannot be written: {error.strerror or error}.") from None
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _flush(folder: Path) -> None:
    """Wait until everything below is on the disk."""
    for path in (folder, *folder.rglob("*")):
        if path.is_dir():
            durable.flush_folder(path)
        else:
            with path.open("rb") as file:
                os.fsync(file.fileno())


def _move_into(source: Path, target: Path) -> None:
    target.mkdir(exist_ok=True)
    for path in source.iterdir():
        if path.is_dir():
            _move_into(path, target / path.name)
        else:
            os.replace(path, target / path.name)
    durable.flush_folder(target)
