"""Figure 1: how long the whole takes from a cold start, and how fast an iteration is.

One local iteration of one run: the sweep of Figure 1 (5 alphas, 3 seeds, individual and common
stepsizes: 30 runs of Scafflix) against a plain NumPy loop over clients that does the same work for
one of them (steps, communications, gap and gradient norm each round), interleaved in this process.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

import scafflix as sx
from scafflix.core.compilation import COMPILATIONS
from scafflix.problems.problem import Problem
from scafflix.record import Record
from scafflix.runs import runner
from scafflix.runs.config import CompareConfig, build


def cold() -> dict[str, float]:
    """`scafflix reproduce fig1` in a new process, with nothing compiled before."""
    command = Path(sys.executable).with_name("scafflix")
    with tempfile.TemporaryDirectory() as folder:
        began = time.perf_counter()
        subprocess.run(
            [command, "reproduce", "fig1", "--out", Path(folder) / "fig1"],
            check=True,
            stdout=subprocess.DEVNULL,
            env={**os.environ, "JAX_ENABLE_COMPILATION_CACHE": "false"},
        )
        seconds = time.perf_counter() - began
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024
    return {"seconds": seconds, "peak_bytes": peak}


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

    def gradient(self, i: int, x: Any) -> Any:
        z = self.b[i] * (self.A[i] @ x)
        return self.A[i].T @ (-self.b[i] / (1 + np.exp(z))) / len(z) + self.l2 * x

    def value(self, i: int, x: Any) -> float:
        z = self.b[i] * (self.A[i] @ x)
        return float(np.mean(np.logaddexp(0, -z)) + 0.5 * self.l2 * x @ x)

    def run(self) -> tuple[int, float]:
        """Iterations made, and the last objective."""
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


def panel(data: str, settings: dict[str, object], repeat: int) -> dict[str, Any]:
    """Milliseconds an iteration of one run: in the sweep, alone, and in the loop."""
    config = build(CompareConfig, {**settings, "data": data})
    problem = runner.build_problem(config)
    local = sx.personalize(problem, 1.0)
    runs = []
    for alpha in config.alphas:
        person = local.at(alpha)
        plan = sx.plan(problem, person)
        for stepsize in (None, plan.gamma.min()):
            method = sx.scafflix(plan, stepsize)
            runs += [sx.Run(person, method, seed) for seed in range(config.seeds)]
    compiled = COMPILATIONS.seconds
    records = sx.sweep(problem, runs, rounds=config.rounds, scores=False)
    compiled = COMPILATIONS.seconds - compiled
    one = 2 * config.seeds  # the second alpha, individual stepsizes, the first seed
    loop = NumpyLoop(problem, records[one], config.alphas[1])
    gap = records[one].metrics["objective_gap"][-1]
    iterations = sum(record.summary["iterations"] for record in records)
    sx.sweep(problem, [runs[one]], rounds=config.rounds, scores=False)  # compiles
    ours, alone, theirs = [], [], []
    reached = 0.0
    for _ in range(repeat):
        again = sx.sweep(problem, runs, rounds=config.rounds, scores=False)
        ours.append(1e3 * again[0].summary["seconds"] * len(runs) / iterations)
        (single,) = sx.sweep(problem, [runs[one]], rounds=config.rounds, scores=False)
        alone.append(1e3 * single.summary["seconds"] / single.summary["iterations"])
        began = time.perf_counter()
        done, reached = loop.run()
        theirs.append(1e3 * (time.perf_counter() - began) / done)
    (optimum,) = sx.engine.planning.optima(problem, [runs[one].person])
    assert abs(reached - float(optimum.value) - gap) < 1e-12, "the two computed something else"
    return {
        "iterations": iterations,
        "compile_seconds": compiled,
        "operations": 4
        * int(problem.federation.train.features.nnz),  # two products of an iteration
        "sweep_ms": ours,
        "alone_ms": alone,
        "numpy_ms": theirs,
        "ratio": min(theirs) / min(ours),
    }


def measure(repeat: int, quick: bool) -> dict[str, Any]:
    """All panels of Figure 1; one, and no cold start, to try it."""
    settings = runner.figure_settings("fig1")
    panels = settings.pop("panels")
    rows = {data: panel(data, settings, repeat) for data in panels[: 1 if quick else None]}
    total = {
        side: sum(row["iterations"] * min(row[f"{side}_ms"]) for row in rows.values())
        for side in ("sweep", "numpy")
    }
    whole = {} if quick else {"cold": cold()}
    return {"panels": rows, "ratio": total["numpy"] / total["sweep"], **whole}
