"""Files and folders whose clients are people, told by name and content.

- an ``.npz`` archive with ``train_user``: `scafflix.data.writers`;
- ``.jsonl`` or ``.jsonl.gz``: `scafflix.data.roles`;
- ``.json``, a folder of ``all_data_*.json`` or of ``train`` and ``test``: `scafflix.data.leaf`;
- ``.sqlite``, ``.sqlite3``, ``.db``, or a folder with ``..._train.sqlite``:
  `scafflix.data.release`.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from scafflix.data.leaf import holds_leaf, read_leaf
from scafflix.data.parts import Parts
from scafflix.data.release import SUFFIXES, holds_release, read_release
from scafflix.data.roles import read_roles
from scafflix.data.writers import holds_writers, read_writers
from scafflix.errors import ScafflixError


def reader_of(path: Path) -> Callable[[Path], Parts] | None:
    """What reads the file or folder, or None if it is nothing of this kind."""
    if os.path.isdir(path):
        try:
            if holds_release(path):
                return read_release
            return read_leaf if holds_leaf(path) else None
        except OSError as error:
            raise ScafflixError(f"{path}: cannot be read ({error.strerror}).") from error
    name = path.name.lower()
    if name.endswith((".jsonl", ".jsonl.gz")):
        return read_roles
    if name.endswith(".json"):
        return read_leaf
    if name.endswith(SUFFIXES):
        return read_release
    return read_writers if name.endswith(".npz") and holds_writers(path) else None


def find_people(folder: Path) -> Path | None:
    """The folder itself, or else the first file in it by name, that can be read."""
    if not folder.is_dir():
        return None
    for path in (folder, *sorted(folder.iterdir())):
        if reader_of(path) is not None:
            return path
    return None
