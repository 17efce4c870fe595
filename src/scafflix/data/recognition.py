"""Files and folders whose clients are people, told by name and content.

- an ``.npz`` archive with ``train_user``: `scafflix.data.writers`;
- ``.jsonl`` or ``.jsonl.gz``: `scafflix.data.roles`;
- ``.json``, a folder of ``all_data_*.json`` or of ``train`` and ``test``: `scafflix.data.leaf`;
- a folder of ``...processed.NAME.data``: `scafflix.data.hospitals`;
- ``.mat``: `scafflix.data.mines`;
- ``.sqlite``, ``.sqlite3``, ``.db``, or a folder with ``..._train.sqlite``:
  `scafflix.data.release`.
"""

from __future__ import annotations

import os
import re
import zipfile
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from scafflix.core.errors import ScafflixError

if TYPE_CHECKING:
    from scafflix.data.parts import Parts

COMPRESSED = (".bz2", ".xz", ".gz")
SUFFIXES = (".sqlite", ".sqlite3", ".db")
CSV = (".csv", ".tsv", ".csv.gz", ".tsv.gz")
TABLES = (*CSV, ".parquet")


def kind_of(path: Path) -> str | None:
    """The module that reads the file or folder, or None if it is nothing of this kind."""
    if os.path.isdir(path):
        try:
            if holds_release(path):
                return "release"
            if any(path.glob("*processed.*.data")):
                return "hospitals"
            return "leaf" if holds_leaf(path) else None
        except OSError as error:
            raise ScafflixError(f"{path}: cannot be read ({error.strerror}).") from error
    name = path.name.lower()
    if name.endswith((".jsonl", ".jsonl.gz")):
        return "roles"
    if name.endswith(".mat"):
        return "mines"
    if name.endswith(".json"):
        return "leaf"
    if name.endswith(SUFFIXES):
        return "release"
    return "writers" if name.endswith(".npz") and holds_writers(path) else None


def is_csv(path: Path) -> bool:
    """Whether the file is read as CSV."""
    return path.name.lower().endswith(CSV)


def is_table(path: Path) -> bool:
    """Whether the file is read as a table."""
    return path.name.lower().endswith(TABLES)


def stem(path: Path) -> str:
    """The name without what says how the file is written.

    >>> stem(Path("st.mary.csv.gz")), stem(Path("rows.svm.bz2")), stem(Path("rows.npz"))
    ('st.mary', 'rows', 'rows')
    """
    return Path(path.stem).stem if path.suffix.lower() in COMPRESSED else path.stem


def tables_in(folder: Path) -> list[Path]:
    """The tables of a folder, each a client's; a hidden file is none."""
    return sorted(
        path for path in folder.iterdir() if is_table(path) and not path.name.startswith(".")
    )


def reader_of(path: Path) -> Callable[[Path], Parts] | None:
    """What reads the file or folder, or None; imported only now, when it is wanted."""
    kind = kind_of(path)
    if kind is None:
        return None
    reader: Callable[[Path], Parts] = getattr(
        import_module(f"scafflix.data.{kind}"), f"read_{kind}"
    )
    return reader


def find_people(folder: Path) -> Path | None:
    """The folder itself, or else the first file in it by name, that can be read."""
    if not folder.is_dir():
        return None
    for path in (folder, *sorted(folder.iterdir())):
        if kind_of(path) is not None:
            return path
    return None


def holds_leaf(folder: Path) -> bool:
    """Whether the folder is one of LEAF."""
    return bool(files_in(folder)) or all(files_in(folder / part) for part in ("train", "test"))


def files_in(folder: Path) -> list[Path]:
    """The LEAF files of a folder, in the order of their numbers."""
    pattern = "*.json" if folder.name in ("train", "test") else "all_data_*.json"
    return sorted(folder.glob(pattern), key=lambda file: (len(file.stem), file.stem))


def holds_release(folder: Path) -> bool:
    """Whether the folder has a training file of such a release."""
    return any(is_training(file) for file in folder.iterdir())


def is_training(file: Path) -> bool:
    """Whether the name says SQLite and training."""
    return file.suffix in SUFFIXES and re.search(r"(^|[_-])train$", file.stem) is not None


def holds_writers(path: Path) -> bool:
    """Whether the file is such an archive."""
    try:
        with zipfile.ZipFile(path) as archive:
            return "train_user.npy" in archive.namelist()
    except Exception:  # whatever is wrong, `read_archive` says it
        return False
