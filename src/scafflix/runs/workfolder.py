"""A command with a folder to write: for one process at a time, stopped and resumed at will.

While it is under way the folder holds `checkpoint/`: a note of what was asked for, and the trails
of its computations. When everything is written, `checkpoint/` is removed.
"""

from __future__ import annotations

import shutil
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

from scafflix.core import durable
from scafflix.core.checkpoint import Checkpoints, Often, Stop, refuse_difference
from scafflix.core.errors import DivergenceError, ScafflixError, StopError
from scafflix.core.folders import check_new_folder, whole_folder
from scafflix.core.versions import versions

CHECKPOINT, NOTE = "checkpoint", f"job{durable.SUFFIX}"
SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Asked(NamedTuple):
    """A command and its arguments, as JSON can hold them; words that name files are relative to
    the directory. Another directory or schedule changes nothing in the result, so that a job goes
    on with it; anything else is another job."""

    command: str
    arguments: dict[str, Any]
    directory: str
    often: Often = Often()


class Job:
    """A command under way."""

    def __init__(self, asked: Asked, folder: Path) -> None:
        self.asked, self.folder = asked, folder
        self.stop = Stop()
        place = folder / CHECKPOINT
        self.checkpoints = Checkpoints(place, asked.often, self.stop, self.announce)

    @property
    def announced(self) -> bool:
        """Whether there may be something to resume."""
        return (self.folder / CHECKPOINT / NOTE).exists()

    def saved(self) -> list[Path]:
        """The checkpoints, the oldest first."""
        found = (self.folder / CHECKPOINT).rglob(f"[0-9]*{durable.SUFFIX}")
        return sorted(found, key=lambda file: file.stat().st_mtime_ns)

    def announce(self) -> None:
        """Note what was asked for, before anything is left that goes with it."""
        if not self.announced:
            place = durable.new_folder(self.folder / CHECKPOINT)
            facts = {**self.asked._asdict(), "versions": versions(), "finished": False}
            durable.write(place / NOTE, facts, [])

    @contextmanager
    def output(self) -> Iterator[Path]:
        """A folder aside for what the command makes; put in place, and the job is finished."""
        with whole_folder(self.folder, force=True) as aside:
            yield aside
        if self.announced:
            note = self.folder / CHECKPOINT / NOTE
            durable.write(note, {**_read(note), "finished": True}, [])
            _clear(note.parent)


@contextmanager
def begin(asked: Asked, folder: Path, *, force: bool = False) -> Iterator[Job]:
    """Begin a job, or go on with the same one where it was stopped; with `force`, begin anew."""
    asked.often.check()
    check_new_folder(folder, force=True)
    folder.mkdir(parents=True, exist_ok=True)
    with durable.locked(folder, patience=0.0):
        try:
            _prepare(asked, folder, force)
            job = Job(asked, folder)
            with _failures(job), _signals(job.stop):
                yield job
        finally:
            with suppress(OSError):
                folder.rmdir()  # unless there is something in it


def unfinished(folder: Path) -> Asked:
    """What was asked for in a folder whose job was stopped."""
    note = folder / CHECKPOINT / NOTE
    if not folder.is_dir():
        raise ScafflixError(f"There is no folder {folder} to resume.")
    if not note.exists() or (found := _read(note))["finished"]:
        what = "is finished" if any(folder.iterdir()) else "is empty"
        raise ScafflixError(f"{folder} {what}: there is nothing to resume.")
    return Asked(found["command"], found["arguments"], found["directory"], Often(*found["often"]))


def _prepare(asked: Asked, folder: Path, force: bool) -> None:
    """Refuse a folder that holds something else, or something made in another way."""
    place, note = folder / CHECKPOINT, folder / CHECKPOINT / NOTE
    if force or not note.exists() or _read(note)["finished"]:
        with suppress(OSError):  # of someone else, or not there
            _clear(place)
        check_new_folder(folder, force=force)
        if place.exists():
            raise ScafflixError(f"{place} was not written by a run; choose another folder.")
        return
    found = _read(note)
    what = f"The unfinished run in {folder}"
    refuse_difference(what, {"command": found["command"]}, {"command": asked.command})
    refuse_difference(what, found["arguments"], asked.arguments)
    theirs, ours = ({**made, "commit": ""} for made in (found["versions"], versions()))
    refuse_difference(what, theirs, ours)  # the commit may differ: versions say what is the same


def _read(note: Path) -> dict[str, Any]:
    found = durable.read(note, " Start over with --force.")
    assert found is not None
    return found[0]


def _clear(place: Path) -> None:
    """Remove a folder of checkpoints, its note last: what is left of it is known to be ours."""
    note = place / NOTE
    if note.exists():
        for path in place.iterdir():
            if path.is_dir():
                shutil.rmtree(path)
        note.unlink()
    for aside in place.glob(f".{NOTE}.*.part"):  # of one that was killed
        aside.unlink(missing_ok=True)
    place.rmdir()


@contextmanager
def _failures(job: Job) -> Iterator[None]:
    """Say what is kept of a job that ends early; of one without a checkpoint, keep nothing."""
    try:
        yield
    except StopError as error:
        error.resumable = job.folder if job.announced else None
        raise
    except BaseException as error:
        good = job.saved()
        if good and isinstance(error, DivergenceError):
            last = f" {good[-1]} is the last good checkpoint."
            raise DivergenceError(f"{error}{last}", error.round) from None
        if not good and list(job.folder.iterdir()) == [job.folder / CHECKPOINT]:
            _clear(job.folder / CHECKPOINT)
        raise


@contextmanager
def _signals(stop: Stop) -> Iterator[None]:
    """Let the first signal to stop wait for the round under way; the second does not wait."""

    def ask(number: int, frame: FrameType | None) -> None:
        if stop.signal is not None or not stop.under_way:
            raise StopError(number)
        stop.signal = number

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, ask) for number in SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
