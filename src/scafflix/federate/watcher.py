"""The process that ends others when the one that started them is gone, however it went.

Its input is a pipe that only the starter holds: a line for each process to watch, and at the end
of it, also that of a starter killed with signal 9, they and all that they started are killed. What
it watches is noted in a file, for a next command to end should this process be killed as well.

It is run as a file of its own, without the rest of the package: small, and ready at once.
"""

from __future__ import annotations

import json
import os
import select
import signal
import sys
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

import psutil

BETWEEN = 1.0  # seconds between two looks for new children
DYING = 5.0  # seconds that the system has to remove what was killed


def with_offspring(processes: Iterable[psutil.Process]) -> set[psutil.Process]:
    """Those that live, and what they started, in whatever session that is."""
    children: dict[int, list[psutil.Process]] = {}
    for process in psutil.process_iter(["ppid"]):
        children.setdefault(process.info["ppid"], []).append(process)
    ahead = [process for process in processes if process.is_running()]
    found = set(ahead)
    while ahead:
        young = [one for one in children.get(ahead.pop().pid, []) if one not in found]
        found.update(young)
        ahead += young
    return {process for process in found if process.pid != os.getpid()}


def end(processes: Iterable[psutil.Process]) -> None:
    """Kill them and what they started; all stand still before, so that none starts another."""
    known, still = set(processes), set[psutil.Process]()
    while moving := (known := with_offspring(known)) - still:
        for process in moving:
            with suppress(psutil.Error):
                process.suspend()
        still |= moving
    for process in known:
        with suppress(psutil.Error):
            process.kill()
    until = time.monotonic() + DYING
    while any(map(_alive, known)) and time.monotonic() < until:
        time.sleep(0.02)


def _alive(process: psutil.Process) -> bool:
    with suppress(psutil.NoSuchProcess):
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    return False


def line_of(process: psutil.Process) -> str:
    """By which a process is known, also when its number was given to another since."""
    return json.dumps([process.pid, process.create_time()])


def process_of(line: str) -> psutil.Process | None:
    """The process of a line, if it is still there."""
    pid, created = json.loads(line)
    with suppress(psutil.NoSuchProcess):
        process = psutil.Process(pid)
        if process.create_time() == created:
            return process
    return None


def write_note(path: Path, processes: Iterable[psutil.Process]) -> None:
    """For the next command."""
    lines = []
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            lines.append(line_of(process))
    aside = path.with_name(f"{path.name}.{os.getpid()}")
    aside.write_text("\n".join(lines))
    aside.replace(path)


def read_note(path: Path) -> list[psutil.Process]:
    """What a command left running; a note that cannot be read names nobody."""
    with suppress(OSError, ValueError, TypeError):
        found = map(process_of, path.read_text().splitlines())
        return [process for process in found if process is not None]
    return []


def watch(note: Path) -> None:
    """Until the pipe closes."""
    watched: set[psutil.Process] = set()
    noted: set[psutil.Process] = set()
    rest = ""
    while True:
        if select.select([0], [], [], BETWEEN)[0]:
            told = os.read(0, 65536).decode()
            if not told:
                break
            *lines, rest = (rest + told).split("\n")
            watched.update(one for one in map(process_of, lines) if one is not None)
        watched = with_offspring(watched)
        if watched != noted:
            with suppress(OSError):  # a full disk, a removed folder: the watch goes on
                write_note(note, {psutil.Process(), *watched})
                noted = set(watched)
    end(watched)
    note.unlink(missing_ok=True)


if __name__ == "__main__":
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # the starter stops in its own time
    watch(Path(sys.argv[1]))
