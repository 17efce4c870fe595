"""The secret with which processes of the same user authenticate to each other."""

from __future__ import annotations

import os
import secrets
from pathlib import Path


def new_secret(path: Path) -> str:
    """Make a secret, in a file that only this user can read."""
    secret = secrets.token_hex(32)
    write_for_owner(path, secret)
    return secret


def write_for_owner(path: Path, text: str) -> None:
    """Replace a file by a new one that others can never read."""
    path.unlink(missing_ok=True)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(text)
