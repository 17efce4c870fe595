"""Data sets in Arrow and Parquet files, as Hugging Face's `datasets` writes them.

- a folder of ``save_to_disk``: of one data set (``state.json``), or of several splits
  (``dataset_dict.json``);
- a folder of ``.parquet`` or ``.arrow`` files, also in ``data/`` or in a folder for each split. A
  name that begins with ``train``, ``test`` or ``validation`` says the split; without it a file
  belongs to the training split;
- one such file.

Nothing is needed for this but Arrow.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scafflix.core.errors import ScafflixError, reason_of

if TYPE_CHECKING:
    import pyarrow as pa

FILES = (".parquet", ".arrow")
STATE, SPLITS = "state.json", "dataset_dict.json"

PARTS = {
    "train": "train",
    "training": "train",
    "test": "test",
    "testing": "test",
    "validation": "validation",
    "valid": "validation",
    "val": "validation",
    "dev": "validation",
}
"""The part of a federation that a split is, by the split's name."""

NAMED = re.compile(rf"(?P<split>{'|'.join(PARTS)})(?![a-z]).*", re.IGNORECASE)

Tables = dict[str, "pa.Table"]
"""The table of each part: train, and maybe test and validation."""


def read_splits(path: Path) -> Tables:
    """The tables of a data set on the disk."""
    if path.is_file():
        return {"train": _read([path])}
    if (path / SPLITS).is_file():
        names = _json(path / SPLITS).get("splits")
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            raise ScafflixError(f"{path / SPLITS}: there is no list of splits in it.")
        return by_part({name: _saved(_inside(path, name)) for name in names}, str(path))
    if (path / STATE).is_file():
        return {"train": _saved(path)}
    found: dict[str, list[Path]] = {}
    for folder in (path, *sorted(path.iterdir())):
        named = NAMED.fullmatch(folder.name) if folder != path else None
        if not folder.is_dir() or (folder != path and named is None and folder.name != "data"):
            continue
        for file in sorted(folder.iterdir()):
            if file.suffix.lower() in FILES and not file.name.startswith("."):
                split = named or NAMED.fullmatch(file.stem)
                part = "train" if split is None else PARTS[split["split"].lower()]
                found.setdefault(part, []).append(file)
    if not found:
        raise ScafflixError(
            f"{path}: holds no data set: neither one that save_to_disk wrote, nor files that end "
            "in .parquet or .arrow."
        )
    return by_part({part: _read(files) for part, files in found.items()}, str(path))


def by_part(splits: dict[str, pa.Table], where: str) -> Tables:
    """The splits under the names of the parts that they are."""
    tables: Tables = {}
    for name, table in splits.items():
        part = PARTS.get(name.lower())
        if part is None:
            raise ScafflixError(
                f"{where}: there is a split {name!r}; give train, and maybe test and validation."
            )
        if part in tables:
            raise ScafflixError(f"{where}: there are two splits for {part}; leave one out.")
        tables[part] = table
    if "train" not in tables:
        raise ScafflixError(
            f"{where}: there is no split 'train' among {', '.join(map(repr, splits)) or 'none'}."
        )
    return tables


def _saved(folder: Path) -> pa.Table:
    """What ``save_to_disk`` wrote of one data set."""
    state = _json(folder / STATE)
    files = state.get("_data_files")
    found = files if isinstance(files, list) else []
    names = [str(one.get("filename")) for one in found if isinstance(one, dict)]
    if not names:
        raise ScafflixError(f"{folder / STATE}: it names no files of data.")
    if state.get("_indices_data_files"):
        raise ScafflixError(
            f"{folder}: was saved with an index of its rows, by an old version of datasets; load "
            "it there and save it again."
        )
    return _read([_inside(folder, name) for name in names])


def _inside(folder: Path, name: str) -> Path:
    """A file of the folder; a name may not lead out of it."""
    if not name or Path(name).name != name:
        raise ScafflixError(f"{folder}: names {name!r}, which is no file in it.")
    return folder / name


def _json(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise ScafflixError(f"{path}: cannot be read ({reason_of(error)}).") from None
    if not isinstance(found, dict):
        raise ScafflixError(f"{path}: is not a JSON object.")
    return found


def _read(files: list[Path]) -> pa.Table:
    import pyarrow as pa

    tables = [_read_one(file) for file in files]
    try:
        return pa.concat_tables(tables)
    except pa.ArrowInvalid as error:
        raise ScafflixError(
            f"{files[0].parent}: its files have different columns ({reason_of(error)}); give all "
            "the same."
        ) from None


def _read_one(file: Path) -> pa.Table:
    import pyarrow as pa
    from pyarrow import ipc, parquet

    try:
        if file.suffix.lower() == ".parquet":
            return parquet.ParquetFile(file).read()
        with pa.memory_map(str(file)) as content:
            # `datasets` writes streams; other programs write files, which begin with this
            whole = content.read(6) == b"ARROW1"
            content.seek(0)
            return (ipc.open_file if whole else ipc.open_stream)(content).read_all()
    except (pa.ArrowException, OSError, ValueError) as error:
        raise ScafflixError(f"{file}: cannot be read ({reason_of(error)}).") from None
