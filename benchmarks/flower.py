"""Seconds of a round over real Flower processes: ours, and a plain Flower app's, in turns.

python benchmarks/flower.py [MEGABYTES ...]

Three nodes on this machine, float32 models. Our nodes compute next to nothing, and the plain app
returns the arrays that it gets, so that a round is what the way there and back takes. The plain app
runs on Flower's own processes with their defaults. Ours does what it always does besides: it checks
the arrays, writes states to the disk, and keeps a checkpoint.
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import numpy as np
import psutil

from scafflix.core.vector import Vector
from scafflix.federate.configuration import DeployConfig
from scafflix.federate.learner import Place, Scales
from scafflix.federate.local import LocalFederation

NODES, SIZES = 3, (0.001, 1.0, 50.0)
TURNS, ROUNDS, PLAIN_ROUNDS = 2, 12, 4
PROCESSES = {
    "SuperLink": "scafflix_flower.superlink",
    "job": "scafflix_flower.job",
    "nodes": "scafflix_flower.supernode",
    "workers": "scafflix.federate.worker",
}


class Pull:
    """f(x) = ||x - 1||^2 / 2 on as many numbers as asked for."""

    examples, fingerprint = 1, ""
    scales = Scales(1.0, 0.5, 1.0)  # gamma mu = 1/2: p below 1, as for any other model

    def __init__(self, count: int) -> None:
        self.count = count

    def start(self) -> Vector:
        return Vector((np.zeros(self.count, np.float32),))

    def gradient(self, point: Vector, place: Place) -> Vector:
        return point - self.optimum()

    def loss(self, point: Vector) -> float:
        return float(np.sum((point.tree[0] - 1) ** 2)) / 2

    def score(self, point: Vector) -> float:
        return float("nan")

    def optimum(self) -> Vector:
        return Vector((np.ones(self.count, np.float32),))


def learner(path: Path, config: DeployConfig) -> Pull:
    """The "file" of a node is the number of parameters."""
    return Pull(int(path.name))


class Measured(NamedTuple):
    """What a federation took."""

    seconds: float  # a round, after the first
    first: float  # seconds until the first was closed
    work: dict[str, float]  # processor seconds of a round, by process
    start: float  # processor seconds until the first was closed


def work_so_far() -> dict[str, float]:
    """Processor seconds of all that this process started; all nodes count as one."""
    found = dict.fromkeys(PROCESSES, 0.0)
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.Error):
            words, times = " ".join(process.cmdline()), process.cpu_times()
            for name, module in PROCESSES.items():
                if f"-m {module}" in words:
                    found[name] += times.user + times.system
    return found


def measure(count: int, folder: Path) -> Measured:
    """A federation of ours, from its start to its end."""
    nodes = [
        {
            "client": f"node-{k}",
            "data": str(count),
            "folder": str(folder / f"{k}"),
            "learner": f"{Path(__file__).absolute()}:learner",
            "min-examples": 1,
        }
        for k in range(NODES)
    ]
    config = DeployConfig(data="nodes", model="pull", rounds=ROUNDS, minimum=NODES, patience=600.0)
    looks: list[tuple[int, float, dict[str, float]]] = []
    began = time.monotonic()
    federation = LocalFederation(folder, config, nodes)
    with federation.processes:
        federation.start()
        record = federation.run(
            lambda done, *_: looks.append((done, time.monotonic(), work_so_far()))
        )
    assert record.summary["dropped"] == record.summary["refused"] == 0
    (one, first, before), (all_of_them, last, after) = looks[0], looks[-1]
    rounds = all_of_them - one
    work = {name: (after[name] - before[name]) / rounds for name in PROCESSES}
    return Measured((last - first) / rounds, first - began, work, sum(before.values()))


def row(*cells: object) -> str:
    return f"| {' | '.join(map(str, cells))} |"


def main() -> None:
    import plain_flower  # not above: nodes load this file too, for their learner

    sizes = tuple(map(float, sys.argv[1:])) or SIZES
    print(f"load before: {os.getloadavg()[0]:.1f}")
    print(row("model", "plain Flower, s a round", "ours, s a round", "ratio of each turn"))
    print(row(*["---"] * 4))
    parts: list[str] = []
    for megabytes in sizes:
        count = max(int(megabytes * 1e6 / 4), 1)
        plain: list[float] = []
        ours: list[Measured] = []
        for _ in range(TURNS):
            with tempfile.TemporaryDirectory() as folder:
                rounds = plain_flower.seconds_of_rounds(count, NODES, PLAIN_ROUNDS, Path(folder))
                plain.append(statistics.mean(rounds[1:]))
            with tempfile.TemporaryDirectory() as folder:
                ours.append(measure(count, Path(folder)))
        size = f"{megabytes:g} MB" if megabytes >= 1 else f"{1000 * megabytes:g} kB"
        ratios = ", ".join(f"{o.seconds / p:.2f}" for o, p in zip(ours, plain, strict=True))
        middle = statistics.median(one.seconds for one in ours)
        print(row(size, f"{statistics.median(plain):.2f}", f"{middle:.2f}", ratios), flush=True)
        work = [statistics.median(one.work[name] for one in ours) for name in PROCESSES]
        first, start = min(one.first for one in ours), min(one.start for one in ours)
        parts.append(row(size, *(f"{w:.2f}" for w in work), f"{start:.0f}", f"{first:.0f}"))
    print("\nProcessor seconds of a round; and of the start, with the seconds it took")
    print(row("model", *PROCESSES, "start", "seconds"))
    print(row(*["---"] * 7))
    print("\n".join(parts))


if __name__ == "__main__":
    main()
