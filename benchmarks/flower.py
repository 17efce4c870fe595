"""Seconds and bytes of a round over real Flower processes: 3 nodes, models of 1, 10 and 50 MB.

python benchmarks/flower.py [MEGABYTES ...]

The nodes compute next to nothing, so that a round is what the way there and back takes: starting
a process for each message, serialization, transport, checksums, and writing states to the disk.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from flwr.common.serde import recorddict_to_proto

from scafflix.core.vector import Vector
from scafflix.federate.configuration import DeployConfig
from scafflix.federate.learner import Place, Scales
from scafflix.federate.local import LocalFederation
from scafflix.federate.messages import Upload
from scafflix.federate.wire import pack

NODES, ROUNDS, SIZES = 3, 5, (1.0, 10.0, 50.0)


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


def measure(megabytes: float, folder: Path) -> tuple[float, float, float]:
    """Seconds a round (median, longest), and megabytes of its messages as they are sent."""
    count = int(megabytes * 1e6 / 4)
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
    federation = LocalFederation(folder, config, nodes)
    moments: list[float] = []
    with federation.processes:
        federation.start()
        record = federation.run(lambda *_: moments.append(time.monotonic()))
    assert record.summary["dropped"] == record.summary["refused"] == 0
    seconds = np.diff(moments)
    point = (np.zeros(count, np.float32),)
    sent = recorddict_to_proto(pack(Upload("r", 0, "node-0", 1, 0, 1.0, 0.0, point))).ByteSize()
    return statistics.median(seconds), max(seconds), 2 * NODES * sent / 1e6


def main() -> None:
    sizes = tuple(map(float, sys.argv[1:])) or SIZES
    print("| model | seconds a round, median (longest) | MB a round, up and down |\n|---|---|---|")
    for megabytes in sizes:
        with tempfile.TemporaryDirectory() as folder:
            middle, longest, sent = measure(megabytes, Path(folder))
        print(f"| {megabytes:g} MB | {middle:.1f} ({longest:.1f}) | {sent:.1f} |", flush=True)


if __name__ == "__main__":
    main()
