"""What a server keeps on the disk, so that it can be taken up again after a crash.

roster        who takes part, and the start
checkpoint    the model, the ledger and the counts after the last closed round
rounds.jsonl  a line for each closed round
average-R     the broadcast after round R, as long as somebody has to commit it
mirror-E-N-R  h of client number N after round R of epoch E, if the server keeps a mirror
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from scafflix import durable
from scafflix.durable import Arrays, Hook
from scafflix.errors import ScafflixError


class Mirror(NamedTuple):
    """A client's state after a round; a file for each, so that repeating a round is safe."""

    epoch: int
    number: int  # of the client
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

    def checkpoint(self, facts: dict[str, Any], arrays: Sequence[Any]) -> None:
        durable.write(self._path("checkpoint"), facts, arrays, self.hook)

    def last_checkpoint(self) -> tuple[Any, Arrays] | None:
        return durable.read(self._path("checkpoint"))

    def journal(self, row: Mapping[str, Any]) -> None:
        """Write a round down."""
        durable.append(self._journal, json.dumps(row, allow_nan=False), self.hook)

    def rows(self, count: int) -> list[dict[str, Any]]:
        """The first rounds."""
        return [json.loads(line) for line in self._lines()[:count]]

    def cut_journal(self, count: int) -> None:
        """A round that was written down but not closed is not part of the run."""
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
        return self.folder / "rounds.jsonl"

    def _lines(self) -> list[str]:
        return self._journal.read_text().splitlines(keepends=True) if self._journal.exists() else []

    def _path(self, name: str) -> Path:
        return self.folder / f"{name}{durable.SUFFIX}"

    def _average(self, round: int) -> Path:
        return self._path(f"average-{round}")

    def _mirror(self, which: Mirror) -> Path:
        return self._path(f"mirror-{which.epoch}-{which.number}-{which.round}")

    def _read(self, path: Path) -> Arrays:
        found = durable.read(path)
        if found is None:
            raise ScafflixError(f"{path} is missing.")
        return found[1]
