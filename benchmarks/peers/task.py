"""What every peer is asked to do, and how it answers; needs nothing but NumPy.

A task is a folder: `task.json` and the packed examples of all clients, which every environment
reads from the same files. A worker is a process that prepares one task, says that it is ready, and
then runs as many rounds of federated averaging as each line of its input asks for.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

ARRAYS = ("inputs", "labels", "offsets")
LOOKED_AT = 200  # examples on which the loss before and after a run is compared


@dataclass(frozen=True)
class Recipe:
    """A round: `cohort` clients make `steps` gradient steps each on `batch` of their examples."""

    name: str
    model: str  # cnn, lstm or logistic
    classes: int
    cohort: int
    steps: int
    batch: int
    rate: float


@dataclass(frozen=True)
class Task:
    """A recipe and the examples: client i owns rows `offsets[i]:offsets[i + 1]`."""

    recipe: Recipe
    inputs: Any
    labels: Any
    offsets: Any

    @property
    def clients(self) -> int:
        return len(self.offsets) - 1

    def cohorts(self, rounds: int) -> Iterator[Any]:
        """Who takes part in each round: the same clients for every peer."""
        draw = np.random.default_rng(0)
        for _ in range(rounds):
            yield draw.choice(self.clients, self.recipe.cohort, replace=False)

    def rows(self, draw: np.random.Generator, client: int) -> Any:
        """A batch of a client, drawn with replacement."""
        return draw.integers(self.offsets[client], self.offsets[client + 1], self.recipe.batch)


def write_task(folder: Path, task: Task) -> None:
    """Put a task where workers find it."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in ARRAYS:
        np.save(folder / f"{name}.npy", getattr(task, name))
    (folder / "task.json").write_text(json.dumps(asdict(task.recipe)))


def read_task(folder: Path) -> Task:
    """The arrays stay on disk until they are used."""
    recipe = Recipe(**json.loads((folder / "task.json").read_text()))
    files = (np.load(folder / f"{name}.npy", mmap_mode="c") for name in ARRAYS)
    return Task(recipe, *map(np.asarray, files))  # plain arrays: a memmap is slow to index


@dataclass(frozen=True)
class Ran:
    """What some rounds took and did."""

    seconds: float  # of one round, the mean
    loss_before: float  # of the server's model on the first examples
    loss_after: float
    preparing: float = 0.0  # seconds before the first round of this very run


Run = Callable[[int], Ran]  # rounds -> what they took


def serve(prepare: Callable[[Task], Run]) -> None:
    """Be a worker for the folder in the first argument until the input ends.

    Whatever libraries print goes to the error stream, and only answers to the output.
    """
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    began = time.perf_counter()
    task = read_task(Path(sys.argv[1]))
    run = prepare(task)
    run(1)  # imports, compilation, first allocations
    answer = {"start": time.perf_counter() - began}
    while True:
        print(json.dumps(answer), file=answers, flush=True)
        if not (line := sys.stdin.readline()):
            return
        answer = {**asdict(run(int(line))), "resident": resident()}


def resident() -> int:
    """Bytes of this process that are in memory now."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")
