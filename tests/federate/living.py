"""Who lives: processes that have to do with a folder."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path

import psutil


def of(folder: Path) -> list[str]:
    """The command lines of processes whose words or environment name a folder."""
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            words = " ".join(process.cmdline())
            told = [words]
            with suppress(psutil.AccessDenied):  # Flower hides the environment of some
                told += process.environ().values()
            if process.pid == os.getpid() or process.status() == psutil.STATUS_ZOMBIE:
                continue
            if any(str(folder) in text for text in told):
                found.append(words)
    return found


def wait_until_ended(folder: Path) -> None:
    """Or fail, with those who live."""
    until = time.monotonic() + 30
    while of(folder) and time.monotonic() < until:
        time.sleep(0.1)
    assert of(folder) == []
