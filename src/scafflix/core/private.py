"""Files and folders for their owner alone: 0600 and 0700 from the first moment, whatever the umask.

Everything that holds examples, models, control variates or keys is made here.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import IO, Any

FILE, FOLDER = 0o600, 0o700


def open_file(path: Path, mode: str) -> IO[Any]:
    """A file to write, as `open` gives it."""
    return open(path, mode, opener=_open)


def make_folder(folder: Path) -> Path:
    """The folder and those above it; what is there already stays as it is."""
    missing = [one for one in (folder, *folder.parents) if not one.is_dir()]
    for one in reversed(missing):
        try:
            one.mkdir(FOLDER)
        except FileExistsError:
            if not one.is_dir():  # else another process was faster
                raise
    return folder


def _open(path: str, flags: int) -> int:
    descriptor = os.open(path, flags, FILE)
    try:
        if hasattr(os, "fchmod"):
            os.fchmod(descriptor, FILE)  # one that was there may be open to others
    except OSError:
        os.close(descriptor)
        raise
    return descriptor
