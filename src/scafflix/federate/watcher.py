"""The process that kills others when the process that started them is gone, for whatever reason.

It reads a pipe that only the starter holds open, with one line for each process to watch. When the
pipe closes, even because the starter was killed with signal 9, the watcher kills these processes
and all their descendants. It also lists them in a file, so that the next command can kill them if
the watcher is killed too.

It runs as a separate file, without the rest of the package, to be small and ready at once.
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

BETWEEN = 1.0  # seconds between two checks for new children
DYING = 5.0  # seconds to wait for killed processes to disappear


def with_offspring(processes: Iterable[psutil.Process]) -> set[psutil.Process]:
    """The live ones among these processes, and their descendants in any session."""
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
    """Kill processes and descendants; all are suspended first, so that none starts another."""
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
    """Identifies a process, even if its number is later reused by another."""
    return json.dumps([process.pid, process.create_time()])


def process_of(line: str) -> psutil.Process | None:
    """The process that a line identifies, if it still exists."""
    pid, created = json.loads(line)
    with suppress(psutil.NoSuchProcess):
        process = psutil.Process(pid)
        if process.create_time() == created:
            return process
    return None


def write_note(path: Path, processes: Iterable[psutil.Process]) -> None:
    """List processes in a file for the next command."""
    lines = []
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            lines.append(line_of(process))
    aside = path.with_name(f"{path.name}.{os.getpid()}")
    aside.write_text("\n".join(lines))
    aside.replace(path)


def read_note(path: Path) -> list[psutil.Process]:
    """The processes that a command left running; none if the list cannot be read."""
    with suppress(OSError, ValueError, TypeError):
        found = map(process_of, path.read_text().splitlines())
        return [process for process in found if process is not None]
    return []


def watch(note: Path) -> None:
    """Watch until the pipe closes, then kill."""
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
            with suppress(OSError):  # on a full disk or without the folder, keep watching
                write_note(note, {psutil.Process(), *watched})
                noted = set(watched)
    end(watched)
    note.unlink(missing_ok=True)


if __name__ == "__main__":
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # the starter decides when to stop
    watch(Path(sys.argv[1]))
