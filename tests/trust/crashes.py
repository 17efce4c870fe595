"""Runs that are small, and crash in the middle; and what they leave, as bytes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from scafflix.core.checkpoint import NOWHERE, Checkpoints, Often
from scafflix.record import Record
from scafflix.runs import runner
from scafflix.runs.config import RunConfig, build

CONVEX: dict[str, Any] = {
    "data": "iris",
    "clients": 3,
    "split": "shuffled",
    "scale": "standard",
    "test": 0.2,
    "model": "softmax",
    "alpha": 0.5,
    "batch": 4,
    "stepsize": 0.05,
    "p": 0.5,
    "rounds": 12,
}
NETWORK: dict[str, Any] = {
    **CONVEX,
    "model": "dense",
    "validation": 0.2,
    "cohort": 2,
    "every": 5,
    "optima_stepsize": 0.1,
    "optima_batch": 5,
    "optima_steps": 10,
}
TIMES = ("seconds", "compile_seconds")


class CrashError(BaseException):
    """Nothing in the product catches it, as nothing catches a loss of power."""


def run(
    settings: dict[str, Any], folder: Path | None = None, crash: int | None = None, every: int = 4
) -> Record:
    """A run with checkpoints in a folder, that crashes after a round if asked to."""

    def report(done: int, total: int, state: Any) -> None:
        if crash is not None and total == settings["rounds"] and done >= crash:
            raise CrashError

    kept = NOWHERE if folder is None else Checkpoints(folder, Often(rounds=every))
    return runner.execute(build(RunConfig, settings), report, kept)


def content(record: Record | Path, folder: Path) -> dict[str, Any]:
    """The files of a record, without the times in its summary."""
    if isinstance(record, Record):
        record.save(folder, force=True)
    else:
        folder = record
    found: dict[str, Any] = {
        path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()
    }
    summary = json.loads(found["summary.json"])
    found["summary.json"] = {name: summary[name] for name in summary if name not in TIMES}
    return found
