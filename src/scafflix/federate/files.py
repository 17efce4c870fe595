"""What a server keeps on disk, so that it can continue after a crash.

terms.json      the configuration with which the run began
roster          who takes part, and the starting point
checkpoint-E-R  the model, the ledger and the counts after R closed rounds, in epoch E
rounds.jsonl    a line for each closed round
average-R       the broadcast after round R, as long as a client still has to commit it
privacy         what the clients have spent, with privacy (`spending.py`)
noise           the secret that the server draws noise from, if it adds any (`server_noise.py`)
live.json       who answered when and how the rounds go, for whoever watches (`live.py`)
mirror-E-N-R    h of client number N after round R of epoch E, if the server keeps a mirror
masked-E-R      the sum of masked messages of round R of epoch E, from when it is to be unmasked
masked-E-R-WHAT the same of what clients report after R rounds; then what it came to
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from scafflix.core import durable
from scafflix.core.durable import Arrays, Hook
from scafflix.core.errors import ScafflixError

JOURNAL = "rounds.jsonl"


class Moment(NamedTuple):
    """When a checkpoint was written."""

    epoch: int
    round: int  # the number of closed rounds


class Mirror(NamedTuple):
    """A client's state after a round, in a file of its own, so that repeating a round is safe."""

    epoch: int
    number: int  # the client's number
    round: int


class ServerFiles:
    """The folder of a run."""

    def __init__(self, folder: Path, hook: Hook) -> None:
        self.folder, self.hook = folder, hook

    def average(self, round: int) -> Arrays:
        """The broadcast after a round."""
        return self._read(self._average(round))

    def keep_average(self, round: int, point: Arrays) -> None:
        durable.write(self._average(round), {"round": round}, point, self.hook)

    def mirror(self, which: Mirror) -> Arrays:
        """The arrays of a mirrored state."""
        return self._read(self._mirror(which))

    def keep_mirror(self, which: Mirror, client: str, arrays: Sequence[Any]) -> None:
        durable.write(self._mirror(which), {"client": client}, arrays, self.hook)

    def masked(self, at: Moment, what: str = "") -> tuple[Any, Arrays] | None:
        """The sum that is to be unmasked in the open round; None before there is one."""
        return durable.read(self._masked(at, what))

    def keep_masked(
        self, at: Moment, facts: dict[str, Any], sum: Sequence[Any], what: str = ""
    ) -> None:
        durable.write(self._masked(at, what), facts, sum, self.hook)

    def forget_masked(self, now: Moment) -> None:
        """Remove the sums of other rounds than the open one."""
        for path in self.folder.glob(f"masked-*{durable.SUFFIX}"):
            if path.stem.split("-")[1:3] != [str(now.epoch), str(now.round)]:
                durable.remove(path)

    def checkpoint(self, at: Moment, facts: dict[str, Any], arrays: Sequence[Any]) -> None:
        durable.write(self._checkpoint(at), facts, arrays, self.hook)

    def moments(self) -> list[Moment]:
        """When checkpoints were written, oldest first; an epoch may begin at an earlier round."""
        paths = self.folder.glob(f"checkpoint-*{durable.SUFFIX}")
        return sorted(Moment(*map(int, path.stem.split("-")[1:])) for path in paths)

    def checkpoint_at(self, at: Moment) -> tuple[Any, Arrays]:
        """The checkpoint written at this moment."""
        found = durable.read(
            self._checkpoint(at), " Go back to an earlier round with --from ROUND."
        )
        assert found is not None
        return found

    def keep_checkpoints(self, newest: int, best: int) -> None:
        """Remove all checkpoints but the newest ones, and the newest one of the round `best`."""
        moments = self.moments()
        kept = {*moments[-newest:], *[one for one in moments if one.round == best][-1:]}
        for one in moments:
            if one not in kept:
                durable.remove(self._checkpoint(one))

    def forget_after(self, now: Moment) -> None:
        """Remove the checkpoints of rounds after the one that the run went back to."""
        for one in self.moments():
            if one.round > now.round:
                durable.remove(self._checkpoint(one))

    def journal(self, row: Mapping[str, Any]) -> None:
        """Append a round to the journal."""
        durable.append(self._journal, json.dumps(row, allow_nan=False), self.hook)

    def rows(self, count: int) -> list[dict[str, Any]]:
        """The first `count` rounds."""
        return [json.loads(line) for line in self._lines()[:count]]

    def cut_journal(self, count: int) -> None:
        """Cut the journal after `count` rounds: one that was not closed is not part of the run."""
        lines = self._lines()
        if len(lines) > count:
            durable.put(self._journal, ["".join(lines[:count]).encode()], self.hook)

    def forget_all_but(self, averages: Iterable[int], mirrors: Iterable[Mirror]) -> None:
        """Remove the averages and mirrored states that nobody needs any more."""
        kept = {*map(self._average, averages), *map(self._mirror, mirrors)}
        for pattern in ("average-*", "mirror-*"):
            for path in self.folder.glob(f"{pattern}{durable.SUFFIX}"):
                if path not in kept:
                    durable.remove(path)

    @property
    def _journal(self) -> Path:
        return self.folder / JOURNAL

    def _lines(self) -> list[str]:
        return self._journal.read_text().splitlines(keepends=True) if self._journal.exists() else []

    def _path(self, name: str) -> Path:
        return self.folder / f"{name}{durable.SUFFIX}"

    def _checkpoint(self, at: Moment) -> Path:
        return self._path(f"checkpoint-{at.epoch}-{at.round}")

    def _masked(self, at: Moment, what: str = "") -> Path:
        return self._path(f"masked-{at.epoch}-{at.round}{what and '-'}{what}")

    def _average(self, round: int) -> Path:
        return self._path(f"average-{round}")

    def _mirror(self, which: Mirror) -> Path:
        return self._path(f"mirror-{which.epoch}-{which.number}-{which.round}")

    def _read(self, path: Path) -> Arrays:
        found = durable.read(path)
        if found is None:
            raise ScafflixError(
                f"{path} is missing; put it back, or start the server with --new-epoch."
            )
        return found[1]
