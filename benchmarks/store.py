"""A state larger than memory: the CNN with made-up writers whose x_i* and h_i live in files.

Seconds a round and peak resident memory of Scafflix with 100, 1,000 and 3,400 clients (33 GB), each
in a new process: `store.py CLIENTS ROUNDS FOLDER` prints what one of them took.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import jax
import numpy as np

import scafflix as sx
from peers.scafflix_worker import ALPHA, fixed_steps
from peers.task import Recipe, Task
from scafflix.core.store import Store
from scafflix.data.federation import Examples, Federation
from scafflix.simulate.cohorts import train
from scafflix.simulate.schedule import Schedule


def made_up_writers(clients: int) -> Federation:
    """Images of noise, 20 to 40 a client for training."""
    draw = np.random.default_rng(0)

    def part(low: int, high: int) -> Examples:
        counts = draw.integers(low, high, clients)
        rows = int(counts.sum())
        images = draw.integers(0, 256, (rows, 28, 28), dtype=np.uint8)
        labels = draw.integers(0, 62, rows).astype(np.uint8)
        return Examples(images, labels, np.concatenate([[0], np.cumsum(counts)]))

    names = tuple(f"writer-{k}" for k in range(clients))
    return Federation("made-up", names, part(20, 41), part(1, 3))


def one(clients: int, rounds: int, folder: Path) -> dict[str, float]:
    """Some rounds of 10 clients; x_i* of every client is written first."""
    federation = made_up_writers(clients)
    problem = sx.Problem(federation, sx.models.cnn())
    start = problem.start(0)
    x_star = Store(problem.template, clients, folder / "x_star.f32")
    began = time.perf_counter()
    draw = np.random.default_rng(1)

    def noisy(leaf: Any) -> Any:  # a start with a little noise stands for a local optimum
        return np.asarray(leaf)[None] + 0.01 * draw.standard_normal((1, *leaf.shape), np.float32)

    for client in range(clients):
        x_star.write(np.array([client]), jax.tree.map(noisy, start))
    x_star.sync()
    written = time.perf_counter() - began
    recipe = Recipe("store", "cnn", classes=62, cohort=10, steps=5, batch=20, rate=0.01)
    examples = federation.train
    task = Task(recipe, examples.features, examples.labels, examples.offsets)
    method = fixed_steps("scafflix", task, ALPHA)
    ends: list[float] = []
    trained = train(
        problem,
        sx.Personalization(np.full(clients, ALPHA), x_star),
        method,
        start,
        Schedule(rounds=rounds, cohort=recipe.cohort, every=rounds, store=folder / "h.f32"),
        progress=lambda *_: ends.append(time.perf_counter()),
    )
    assert trained.divergence is None
    return {
        "clients": clients,
        "state": 2 * x_star.bytes,
        "seconds": float(np.median(np.diff(ends))),
        "peak": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        "seconds_to_write_x_star": written,
    }


def measure(quick: bool, scratch: Path) -> list[dict[str, float]]:
    """Each size in a process of its own, so that its memory can be told."""
    found = []
    for clients in (20,) if quick else (100, 1000, 3400):
        with tempfile.TemporaryDirectory(dir=scratch) as place:
            rounds = "4" if quick else "24"
            command = [sys.executable, __file__, str(clients), rounds, place]
            made = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
            found.append(json.loads(made.stdout))
    return found


if __name__ == "__main__":
    sx.use_all_cores()
    print(json.dumps(one(int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]))))
