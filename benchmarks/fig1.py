"""Figure 1: how long the whole takes from a cold start, and how fast an iteration is.

1. `scafflix reproduce fig1` in a new process: seconds and peak memory, everything included.
2. One local iteration of one run: the sweep of Figure 1 (5 alphas, 3 seeds, individual and
   common stepsizes: 30 runs of Scafflix) against a plain NumPy loop over clients that does the
   same work for one of them (steps, communications, gap and gradient norm each round). Both in
   this process, interleaved, the best of several repetitions.

    python benchmarks/fig1.py [--repeat 5] [--json FILE]
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

import scafflix as sx
from scafflix import experiment
from scafflix.config import CompareConfig, build
from scafflix.problem import Problem
from scafflix.record import Record


def cold() -> dict[str, float]:
    """A new process, with nothing compiled before."""
    with tempfile.TemporaryDirectory() as folder:
        command = Path(sys.executable).with_name("scafflix")
        began = time.perf_counter()
        subprocess.run(
            [command, "reproduce", "fig1", "--out", Path(folder) / "fig1"],
            check=True,
            stdout=subprocess.DEVNULL,
        )
        seconds = time.perf_counter() - began
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
    return {"seconds": seconds, "peak_megabytes": peak}


class NumpyLoop:
    """Algorithm 1 as one would write it down in an afternoon."""

    def __init__(self, problem: Problem, record: Record, alpha: float) -> None:
        train = problem.federation.train
        features = train.features.toarray()
        cuts = train.offsets[1:-1]
        self.A = np.split(features, cuts)
        self.b = np.split(problem.targets.values, cuts)
        self.x_star = record.models["local"]
        self.gamma = record.clients["gamma"]
        self.steps = record.metrics["local_steps"][1:]
        self.alpha, self.l2, self.p = alpha, problem.l2, record.summary["p"]

    def gradient(self, i: int, x: np.ndarray) -> np.ndarray:
        z = self.b[i] * (self.A[i] @ x)
        return self.A[i].T @ (-self.b[i] / (1 + np.exp(z))) / len(z) + self.l2 * x

    def value(self, i: int, x: np.ndarray) -> float:
        z = self.b[i] * (self.A[i] @ x)
        return float(np.mean(np.logaddexp(0, -z)) + 0.5 * self.l2 * x @ x)

    def run(self) -> tuple[int, float]:
        n, alpha, gamma = len(self.A), self.alpha, self.gamma
        weight = alpha**2 / gamma
        x = [np.ones(self.A[0].shape[1]) for _ in range(n)]
        h = [np.zeros_like(x[0]) for _ in range(n)]
        value = 0.0
        for steps in self.steps:
            for _ in range(steps):
                for i in range(n):
                    mixed = alpha * x[i] + (1 - alpha) * self.x_star[i]
                    x[i] = x[i] - gamma[i] / alpha * (self.gradient(i, mixed) - h[i])
            mean = sum(weight[i] * x[i] for i in range(n)) / weight.sum()
            for i in range(n):
                h[i] = h[i] + self.p * alpha / gamma[i] * (mean - x[i])
                x[i] = mean
            mixed_all = [alpha * mean + (1 - alpha) * star for star in self.x_star]
            value = np.mean([self.value(i, mixed_all[i]) for i in range(n)])
            np.mean([alpha * self.gradient(i, mixed_all[i]) for i in range(n)], axis=0)
        return int(self.steps.sum()), float(value)


def per_iteration(data: str, settings: dict[str, object], repeat: int) -> dict[str, float]:
    config = build(CompareConfig, {**settings, "data": data})
    problem = experiment.build_problem(config)
    local = sx.personalize(problem, 1.0)
    runs = []
    for alpha in config.alphas:
        person = local.at(alpha)
        plan = sx.plan(problem, person)
        for stepsize in (None, plan.gamma.min()):
            method = sx.scafflix(plan, stepsize)
            runs += [sx.Run(person, method, seed) for seed in range(config.seeds)]
    records = sx.sweep(problem, runs, rounds=config.rounds, scores=False)
    one = 2 * config.seeds  # the second alpha, individual stepsizes, the first seed
    loop = NumpyLoop(problem, records[one], config.alphas[1])
    value = records[one].metrics["objective_gap"][-1]
    iterations = sum(record.summary["iterations"] for record in records)
    ours, alone, theirs = [], [], []
    sx.sweep(problem, [runs[one]], rounds=config.rounds, scores=False)  # compiles
    for _ in range(repeat):
        again = sx.sweep(problem, runs, rounds=config.rounds, scores=False)
        ours.append(again[0].summary["seconds"] * len(runs) / iterations)
        (single,) = sx.sweep(problem, [runs[one]], rounds=config.rounds, scores=False)
        alone.append(single.summary["seconds"] / single.summary["iterations"])
        began = time.perf_counter()
        done, reached = loop.run()
        theirs.append((time.perf_counter() - began) / done)
    (optimum,) = sx.engine.planning.optima(problem, [runs[one].person])
    assert abs(reached - float(optimum.value) - value) < 1e-12, "the two computed something else"
    return {
        "runs": len(runs),
        "iterations": iterations,
        "scafflix_ms": 1e3 * min(ours),
        "scafflix_alone_ms": 1e3 * min(alone),
        "numpy_ms": 1e3 * min(theirs),
        "ratio": min(theirs) / min(ours),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    settings = experiment.figure_settings("fig1")
    panels = settings.pop("panels")
    whole = cold()
    rows = {data: per_iteration(data, settings, arguments.repeat) for data in panels}
    total = {
        side: sum(row["iterations"] * row[f"{side}_ms"] for row in rows.values())
        for side in ("scafflix", "numpy")
    }
    console = Console()
    console.print(
        f"reproduce fig1, cold: {whole['seconds']:.1f} s, {whole['peak_megabytes']:.0f} MB "
        f"({os.cpu_count()} cores, {platform.processor() or platform.machine()})"
    )
    table = Table(title="Milliseconds per local iteration of one run", title_justify="left")
    for name in ("data", "NumPy loop", "scafflix alone", "in the sweep", "times faster"):
        table.add_column(name, justify="left" if name == "data" else "right")
    for data, row in rows.items():
        table.add_row(
            data,
            *(f"{row[name]:.3f}" for name in ("numpy_ms", "scafflix_alone_ms", "scafflix_ms")),
            f"{row['ratio']:.1f}",
        )
    overall = total["numpy"] / total["scafflix"]
    table.add_row("all of Figure 1", "", "", "", f"{overall:.1f}")
    console.print(table)
    if arguments.json:
        result = {"cold": whole, "per_iteration": rows, "overall_ratio": overall}
        arguments.json.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
