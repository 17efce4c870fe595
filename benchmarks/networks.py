"""Networks: client-steps beside PyTorch, and a store that is larger than memory.

1. `steps`: whole rounds of Scafflix and FedAvg (10 clients, K = 5, batch 20) against a PyTorch
   eager loop that makes the same number of plain gradient steps on the same data, interleaved in
   this process; CNN on FEMNIST, LSTM on Shakespeare.
2. `store`: Scafflix with the CNN and 100, 1,000 and 3,400 made-up writers, whose states (x_i* and
   h_i, 33 GB for 3,400) live in files: seconds a round and peak resident memory, each in a new
   process.

    python benchmarks/networks.py steps [--repeat 5] [--json FILE]
    python benchmarks/networks.py store [--rounds 24] [--folder DIR] [--json FILE]
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from jax.tree_util import Partial
from rich.console import Console
from rich.table import Table

import scafflix as sx
from scafflix import gradients, theory
from scafflix.cohorts.store import Store
from scafflix.cohorts.training import Schedule, _Run, cohort_of, train
from scafflix.data.federation import Examples, Federation
from scafflix.methods import Method

COHORT, STEPS, BATCH = 10, 5, 20


def fixed_steps(name: str, n: int, alpha: float) -> Method:
    """A method that makes STEPS local steps in every round."""
    plan = theory.without_theory(
        np.full(n, alpha), np.full(n, 0.01), 1 / STEPS, gradients.Minibatch(BATCH)
    )
    options = {"pace": "actual"} if name == "scafflix" else {}
    made = sx.METHODS[name](plan, p=1 / STEPS, **options)
    return replace(made, local_steps=Partial(_always))


def _always(uniforms: Any) -> Any:
    return np.full(len(uniforms), STEPS)


def rounds_of(problem: sx.NetworkProblem, method: str) -> Callable[[], float]:
    """Seconds a client-step of some rounds, the reading and writing of states included."""
    n = problem.n
    alpha = np.full(n, 0.5)
    x_star = Store(problem.template, n)
    start = problem.start(0)
    made = fixed_steps(method, n, 0.5)

    def go(rounds: int = 3) -> float:
        run = _Run(problem, made, alpha, x_star, start, Schedule(rounds=rounds, cohort=COHORT))
        clients = [cohort_of(0, k, run.active, COHORT) for k in range(rounds)]
        began = time.perf_counter()
        for number in range(rounds):
            played = run._play(clients[number], STEPS, number)
            run.server = played.server
            if run.states is not None:
                run.states.write(clients[number], played.states)
        played.loss.block_until_ready()
        return (time.perf_counter() - began) / (rounds * COHORT * STEPS)

    go(1)  # compiles
    return go


def torch_steps(problem: sx.NetworkProblem, threads: int) -> Callable[[], float]:
    """Seconds a gradient step of a plain eager loop."""
    import torch
    from torch import nn

    torch.set_num_threads(threads)
    train_part = problem.federation.train
    if problem.network.name == "cnn":
        features = torch.tensor(train_part.features[:, None].astype(np.float32) / 255)
        labels = torch.tensor(train_part.labels.astype(np.int64))
        model: Any = nn.Sequential(
            nn.Conv2d(1, 32, 3), nn.ReLU(), nn.Conv2d(32, 64, 3), nn.ReLU(), nn.MaxPool2d(2),
            nn.Flatten(), nn.Linear(9216, 128), nn.ReLU(), nn.Linear(128, 62),
        ).to(memory_format=torch.channels_last)  # fmt: skip
    else:
        features = torch.tensor(train_part.features.astype(np.int64))
        labels = torch.tensor(train_part.labels.astype(np.int64))

        class Characters(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.embedding = nn.Embedding(90, 8)
                self.lstm = nn.LSTM(8, 256, num_layers=2, batch_first=True)
                self.output = nn.Linear(256, 90)

            def forward(self, x: Any) -> Any:
                return self.output(self.lstm(self.embedding(x))[0])

        model = Characters()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    loss = nn.CrossEntropyLoss(ignore_index=-1)
    generator = np.random.default_rng(0)

    def go(steps: int = COHORT * STEPS) -> float:
        began = time.perf_counter()
        for _ in range(steps):
            rows = torch.as_tensor(generator.integers(0, len(features), BATCH))
            inputs, targets = features[rows], labels[rows]
            if inputs.ndim == 4:
                inputs = inputs.to(memory_format=torch.channels_last)
            optimizer.zero_grad()
            logits = model(inputs)
            loss(logits.reshape(-1, logits.shape[-1]), targets.reshape(-1)).backward()
            optimizer.step()
        return (time.perf_counter() - began) / steps

    go(3)
    return go


def steps(repeat: int) -> dict[str, Any]:
    """The best of several repetitions of each, in turns."""
    found: dict[str, Any] = {}
    for data, model in (("femnist", "cnn"), ("shakespeare", "lstm")):
        test = {} if data == "femnist" else {"test": 0.1}
        fed = sx.data.load(data, clients=30, validation=0.1, min_examples=BATCH, **test)
        problem = sx.NetworkProblem(fed, sx.models.NETWORKS[model]())
        runners = {
            "scafflix": rounds_of(problem, "scafflix"),
            "fedavg": rounds_of(problem, "fedavg"),
            "PyTorch, 1 thread": torch_steps(problem, 1),
            "PyTorch, 2 threads": torch_steps(problem, 2),
        }
        seconds: dict[str, list[float]] = {name: [] for name in runners}
        for _ in range(repeat):
            for name, go in runners.items():
                if name.startswith("PyTorch"):
                    import torch

                    torch.set_num_threads(int(name.split()[1]))
                seconds[name].append(go())
        found[model] = {name: 1e3 * min(values) for name, values in seconds.items()}
    return found


def made_up_writers(clients: int) -> Federation:
    """Images of noise, 20 to 40 a client for training."""
    generator = np.random.default_rng(0)

    def part(low: int, high: int) -> Examples:
        counts = generator.integers(low, high, clients)
        rows = int(counts.sum())
        images = generator.integers(0, 256, (rows, 28, 28), dtype=np.uint8)
        labels = generator.integers(0, 62, rows).astype(np.uint8)
        return Examples(images, labels, np.concatenate([[0], np.cumsum(counts)]))

    names = tuple(f"writer-{k}" for k in range(clients))
    return Federation("made-up", names, part(20, 41), part(1, 3), part(1, 3))


def one_store(clients: int, rounds: int, folder: Path) -> dict[str, float]:
    """Some rounds of 10 clients; x_i* of every client is written first."""
    problem = sx.NetworkProblem(made_up_writers(clients), sx.models.cnn())
    start = problem.start(0)
    x_star = Store(problem.template, clients, folder / "x_star.f32")
    began = time.perf_counter()
    generator = np.random.default_rng(1)
    for client in range(clients):  # a start with a little noise stands for a local optimum
        tree = {
            name: {
                key: np.asarray(leaf)[None]
                + np.float32(0.01) * generator.standard_normal((1, *leaf.shape), np.float32)
                for key, leaf in layer.items()
            }
            for name, layer in start.items()
        }
        x_star.write(np.array([client]), tree)
    x_star.sync()
    written = time.perf_counter() - began
    method = fixed_steps("scafflix", clients, 0.5)
    times: list[float] = []

    def note(done: int, total: int, state: Any) -> None:
        times.append(time.perf_counter())

    schedule = Schedule(rounds=rounds, cohort=COHORT, every=rounds, store=folder / "h.f32")
    trained = train(problem, method, np.full(clients, 0.5), x_star, start, schedule, note)
    assert trained.divergence is None
    return {
        "clients": clients,
        "state_gigabytes": 2 * x_star.bytes / 1e9,
        "seconds_a_round": float(np.median(np.diff(times))),
        "peak_gigabytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20,
        "seconds_to_write_x_star": written,
    }


def store(rounds: int, folder: Path | None) -> list[dict[str, float]]:
    """Each size in a process of its own, so that its memory can be told."""
    found = []
    for clients in (100, 1000, 3400):
        with tempfile.TemporaryDirectory(dir=folder) as place:
            command = [sys.executable, __file__, "one", str(clients), str(rounds), place]
            made = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
            found.append(json.loads(made.stdout))
    return found


def show(found: Any) -> None:
    table = Table(header_style="bold")
    rows = (
        found
        if isinstance(found, list)
        else [{"milliseconds a client-step": model, **values} for model, values in found.items()]
    )
    for name in rows[0]:
        table.add_column(name, justify="right")
    for row in rows:
        table.add_row(*(f"{v:.3g}" if isinstance(v, float) else str(v) for v in row.values()))
    Console().print(table)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=["steps", "store", "one"])
    parser.add_argument("numbers", nargs="*")
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=24)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    if asked.what == "one":
        clients, rounds, folder = asked.numbers
        print(json.dumps(one_store(int(clients), int(rounds), Path(folder))))
        return
    found = steps(asked.repeat) if asked.what == "steps" else store(asked.rounds, asked.folder)
    show(found)
    if asked.json:
        asked.json.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
