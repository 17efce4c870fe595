"""What others than the owner may do with the files of a folder."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from fnmatch import fnmatch
from pathlib import Path

# by design for everybody: what a report shows, what was asked for, and what is told to others
PUBLIC = (
    "*.crt",
    "*.pub",
    "config.toml",
    "summary.json",
    "metrics.jsonl",
    "clients.jsonl",
    "report.html",
)


@contextmanager
def generous() -> Iterator[None]:
    """A umask that takes nothing from anybody."""
    before = os.umask(0)
    try:
        yield
    finally:
        os.umask(before)


def open_to_others(folder: Path) -> list[str]:
    """Files below a folder that are not public and that others may read or write; and folders
    that others may enter, but for a record's."""
    return sorted(
        str(path.relative_to(folder))
        for path in folder.rglob("*")
        if path.lstat().st_mode & 0o077
        and not (path.is_file() and any(fnmatch(path.name, name) for name in PUBLIC))
        and not (path.is_dir() and (path / "summary.json").exists())
    )
