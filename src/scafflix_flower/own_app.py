"""Only the app of the installed scafflix is run, at a node and at the server.

A run comes with an archive (a FAB) of the app that it asks for. Nothing in it is unpacked or
imported. If its digest equals that of the app installed here, the installed app runs; if not, the
run is refused, and whoever asked for it is told why.
"""

from __future__ import annotations

import hashlib
import io
import zipfile
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

LIMIT = 1_000_000  # largest size of an app in bytes; ours has a few thousand


class OtherAppError(Exception):
    """The server asks for an app that is not ours."""


def folder() -> Path:
    """Where the app is installed; found without importing scafflix and JAX."""
    spec = find_spec("scafflix")
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent / "federate" / "app"


def digest(fab: bytes) -> str:
    """A digest of names and contents; the archive's bytes also depend on the compression."""
    found = hashlib.sha256()
    try:
        with zipfile.ZipFile(io.BytesIO(fab)) as archive:
            entries = sorted(archive.infolist(), key=lambda entry: entry.filename)
            if sum(entry.file_size for entry in entries) > LIMIT:
                return f"more than {LIMIT} bytes"
            for entry in entries:
                found.update(f"{entry.filename}\0{entry.file_size}\0".encode())
                found.update(archive.read(entry))
    except (zipfile.BadZipFile, ValueError, NotImplementedError, RuntimeError) as error:
        return f"none, as it is not an app ({error})"
    return found.hexdigest()


def archive() -> bytes:
    """The installed app as Flower packs it."""
    from flwr.cli.build import build_fab_from_disk  # takes a while, and most messages need none

    return build_fab_from_disk(folder())


def check(fab: bytes, **_: Any) -> None:
    """Refuse any app but ours."""
    asked, own = digest(fab), digest(archive())
    if asked != own:
        raise OtherAppError(
            f"Refused to run an app other than scafflix's own: its digest is {asked}, and that of "
            f"the installed app is {own}; install the same version of scafflix on every machine."
        )


def substitute(module: ModuleType, name: str, value: Any) -> None:
    """Replace a function in Flower; stop if this version of Flower has no such function."""
    if not callable(getattr(module, name, None)):
        raise SystemExit(
            f"{module.__name__} has no {name}, so this Flower is not known to be safe; use 1.41."
        )
    setattr(module, name, value)
