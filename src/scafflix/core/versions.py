"""What a result was made with."""

from __future__ import annotations

import os
import platform
import subprocess
from functools import cache
from importlib.metadata import version
from pathlib import Path

import jax


@cache
def versions() -> dict[str, str]:
    """What made the record."""
    packages = {name: version(name) for name in ("scafflix", "jax", "jaxlib", "numpy")}
    machine = f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores"
    python = platform.python_version()
    devices = f"{jax.device_count()} x {jax.devices()[0].device_kind}"
    made = {**packages, "commit": _commit(), "python": python}
    return {**made, "machine": machine, "devices": devices}


def _commit() -> str:
    """Of the sources, where they are a clone; with a mark if files have changed since."""
    root = Path(__file__).parents[3]
    if not (root / ".git").exists():
        return "none"
    command = ["git", "-C", str(root), "describe", "--always", "--dirty", "--abbrev=40"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
