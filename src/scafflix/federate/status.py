"""How a run stands, handed from the server's app to the command that waits for it.

It goes through a file in the server's folder, for what is in a log may be a client's words.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from scafflix.core import durable
from scafflix.core.errors import one_line

FILE = "status.json"

Progress = Callable[[int, int, str], None]  # rounds done, of how many, how it stands


class Status(NamedTuple):
    """Of the job of that name; another's is not ours to believe."""

    job: str
    done: int = 0
    total: int = 0
    state: str = ""
    finished: bool = False
    error: str = ""  # the sentence with which it ended

    def write(self, folder: Path) -> None:
        """For the command that handed in the job."""
        told = self._replace(state=one_line(self.state), error=one_line(self.error))
        durable.put(folder / FILE, [json.dumps(told._asdict()).encode()])


def read_status(folder: Path, job: str) -> Status:
    """Of this job; one that has said nothing yet has done nothing."""
    try:
        found = Status(**json.loads((folder / FILE).read_text()))
    except FileNotFoundError:
        return Status(job)
    return found if found.job == job else Status(job)
