"""What a process proves itself with to another of the same user."""

from __future__ import annotations

import os
import secrets
from pathlib import Path


def new_secret(path: Path) -> str:
    """A secret in a file for this user alone."""
    secret = secrets.token_hex(32)
    write_for_owner(path, secret)
    return secret


def write_for_owner(path: Path, text: str) -> None:
    """A new file in the place of the old, never readable by others."""
    path.unlink(missing_ok=True)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(text)
