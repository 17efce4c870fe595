"""How far a long computation is, on the disk, so that it goes on as if nothing had happened.

A computation keeps its checkpoints in a folder of its own, its trail. A checkpoint is one file
with a checksum, put in place whole; the two newest are kept, so that one that is damaged later is
no loss. A checkpoint holds everything that the rest depends on except what follows from the
configuration: random numbers depend on the seed and their place alone, so there are no generators
to keep.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple

from scafflix.core import durable
from scafflix.core.arguments import instance, path_of, real_number, whole_number
from scafflix.core.digest import difference
from scafflix.core.durable import Arrays, DamagedError, Facts
from scafflix.core.errors import ScafflixError, ScafflixWarning, StopError
from scafflix.core.progress import MINUTES

KEPT = 2
WORTH_KEEPING = 5.0  # seconds of work, at the end of a computation that others follow
UNDO = ".undo"

Take = Callable[[int, Facts, Arrays], None]  # how many rounds are done, and what was saved


class Often(NamedTuple):
    """When a checkpoint is due: after as many rounds, or as many minutes, whichever is first."""

    rounds: int | None = None
    minutes: float = MINUTES

    def check(self) -> None:
        """Refuse a schedule that makes no sense."""
        if self.rounds is not None:
            whole_number("checkpoint-rounds", self.rounds, least=1)
        real_number("checkpoint-minutes", self.minutes, above=True)


@dataclass
class Stop:
    """Whether a signal asked to stop, and how many computations have a round under way."""

    signal: int | None = None
    under_way: int = 0


@dataclass(frozen=True)
class Checkpoints:
    """Where a run leaves checkpoints, and how often: every 10 minutes, if nothing else is said.

    The same call of `scafflix.run` or `scafflix.sweep` then goes on from the last one, to the bit,
    whatever ended the process; it refuses a folder of another run. Without a folder there are none.
    """

    folder: Path | None = None
    often: Often = Often()
    stop: Stop = field(default_factory=Stop)
    announce: Callable[[], None] = lambda: None  # called before anything is written

    def __post_init__(self) -> None:
        if self.folder is not None:
            object.__setattr__(self, "folder", path_of("folder", self.folder))
        instance("often", self.often, Often, "an sx.Often").check()

    def within(self, name: str) -> Checkpoints:
        """Those of a part of the job."""
        return self if self.folder is None else replace(self, folder=self.folder / name)

    def trail(self, identity: Mapping[str, Any], folder: Path | None = None) -> Trail:
        """Of one computation: `identity` is what its checkpoints must have been made for.

        A computation may have a folder of its own, and then leaves a trail there in any case.
        """
        return Trail(self, identity, folder or self.folder)


NOWHERE = Checkpoints()


class Trail:
    """The checkpoints of one computation; a `with` statement lets signals wait for a round."""

    def __init__(
        self, checkpoints: Checkpoints, identity: Mapping[str, Any], folder: Path | None
    ) -> None:
        self.folder = folder
        self._checkpoints, self._identity = checkpoints, identity
        self._saved, self._clock = 0, time.monotonic()

    def __enter__(self) -> Trail:
        self._checkpoints.stop.under_way += 1
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        where: TracebackType | None,
    ) -> None:
        self._checkpoints.stop.under_way -= 1

    def next_due(self, done: int) -> int:
        """The round after which a checkpoint is due at the latest."""
        rounds = self._checkpoints.often.rounds
        return done + 10**9 if rounds is None else max(done + 1, self._saved + rounds)

    def due(self, done: int, *, last: bool = False) -> bool:
        """Whether to save now, after a round; `last` is the one after the last round."""
        if self.folder is None or (done == self._saved and not last):
            return False
        if self._checkpoints.stop.signal is not None or (last and self._saved):
            return True
        seconds = WORTH_KEEPING if last else 60 * self._checkpoints.often.minutes
        return done >= self.next_due(self._saved) or time.monotonic() - self._clock >= seconds

    def save(self, done: int, facts: Facts, arrays: Arrays) -> None:
        """Keep a checkpoint, and forget all but the newest two."""
        assert self.folder is not None
        self._checkpoints.announce()
        durable.new_folder(self.folder)
        kept = {"identity": dict(self._identity), "done": done, "facts": facts}
        durable.write(self.folder / f"{done:012d}{durable.SUFFIX}", kept, arrays)
        old = self._files()[KEPT:]
        for file in old:
            file.unlink()
        if old:
            durable.flush_folder(self.folder)
            oldest = int(self._files()[-1].stem)
            self._forget([file for file in self.journals(0) if int(file.stem) < oldest])
        self._saved, self._clock = done, time.monotonic()

    def pause(self) -> None:
        """Where a round has ended and everything is saved that is due: stop if asked to."""
        if self._checkpoints.stop.signal is not None:
            raise StopError(self._checkpoints.stop.signal)

    def last(self, take: Take) -> bool:
        """Give the newest checkpoint that is whole to `take`, which raises DamagedError if what
        the checkpoint refers to is not; whether there was one."""
        files = self._files()
        for number, file in enumerate(files):
            try:
                done, facts, arrays = self._read(file)
                take(done, facts, arrays)
            except DamagedError as error:
                before = files[number + 1 :]
                instead = "Going on from the checkpoint before it." if before else "Starting over."
                warnings.warn(f"{error} {instead}", ScafflixWarning, stacklevel=2)
                continue
            self._forget([*files[:number], *self.journals(done)])
            self._saved, self._clock = done, time.monotonic()
            return True
        if files:
            self._forget([*files, *self.journals(0)])
        return False

    def conclude(self) -> None:
        """When all is done: only the newest checkpoint is of use."""
        for file in self.folder.glob("*") if self.folder else ():
            if file not in self._files()[:1]:
                file.unlink()

    def journal(self, done: int) -> Path | None:
        """Where what changes after a checkpoint is kept as it was."""
        return None if self.folder is None else self.folder / f"{done:012d}{UNDO}"

    def journals(self, done: int) -> list[Path]:
        """Those of a checkpoint and of later ones, the newest first."""
        assert self.folder is not None
        found = sorted(self.folder.glob(f"*{UNDO}"), reverse=True)
        return [file for file in found if int(file.stem) >= done]

    def _files(self) -> list[Path]:
        """The checkpoints, the newest first."""
        if self.folder is None:
            return []
        return sorted(self.folder.glob(f"[0-9]*{durable.SUFFIX}"), reverse=True)

    def _read(self, file: Path) -> tuple[int, Facts, Arrays]:
        found = durable.read(file)
        assert found is not None
        kept, arrays = found
        refuse_difference(str(file), kept["identity"], self._identity)
        return kept["done"], kept["facts"], arrays

    def _forget(self, files: list[Path]) -> None:
        """One after the other, in this order whatever happens."""
        assert self.folder is not None
        for file in files:
            file.unlink()
            durable.flush_folder(self.folder)


def refuse_difference(what: str, found: Mapping[str, Any], mine: Mapping[str, Any]) -> None:
    """Name the first thing in which a checkpoint is not of what is asked for.

    >>> refuse_difference("out", {"rounds": 50}, {"rounds": 60})
    Traceback (most recent call last):
    scafflix.core.errors.ScafflixError: out is of something else: its rounds is 50, here ...
    """
    if other := difference(found, mine):
        raise ScafflixError(
            f"{what} is of something else: {other}; choose another folder, or start over with "
            "--force."
        )
