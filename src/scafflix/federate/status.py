"""The status of a run, passed from the server's app to the command that waits for it.

It is passed through a file in the server's folder, because a log may contain text from clients.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from scafflix.core import durable
from scafflix.core.errors import one_line

FILE = "status.json"
MOST, LONGEST = 1000, 500  # notes, and characters of each: clients' words are in them

Progress = Callable[[int, int, str], None]  # rounds done, rounds in total, current state
Notice = Callable[[str], None]  # a sentence for the operator


class Status(NamedTuple):
    """The status of one job; the status of another job is ignored."""

    job: str
    done: int = 0
    total: int = 0
    state: str = ""
    finished: bool = False
    error: str = ""  # the error message with which it ended
    notes: tuple[str, ...] = ()  # sentences for the operator, each of them once

    def noting(self, sentence: str) -> Status:
        """With another sentence, unless it was told before or there are too many."""
        sentence = one_line(sentence)[:LONGEST]
        if sentence in self.notes or len(self.notes) >= MOST:
            return self
        return self._replace(notes=(*self.notes, sentence))

    def write(self, folder: Path) -> None:
        """Write the status for the command that submitted the job."""
        told = self._replace(state=one_line(self.state), error=one_line(self.error))
        durable.put(folder / FILE, [json.dumps(told._asdict()).encode()])


def read_status(folder: Path, job: str) -> Status:
    """The status of this job; empty if it has not written one yet."""
    try:
        found = Status(**json.loads((folder / FILE).read_text()))
    except FileNotFoundError:
        return Status(job)
    return found._replace(notes=tuple(found.notes)) if found.job == job else Status(job)
