"""Does a client's curvature at x_i* tell the one that it meets along the path?

    python benchmarks/curvature.py [KEY=VALUE ...]

Individual stepsizes of networks are proportional to 1/L_i, with L_i at x_i*. This measures L_i
there and at the global model after some rounds of FedAvg at alpha = 1, and prints how the clients'
ranks agree (Spearman) and how far they spread. Keys are those of a run, as in clients=50;
`looks=0,10,30` are the rounds. It costs the local optima, as many rounds as all looks have
together, and for each look and client 12 Hessian-vector products of at most 100 examples.
"""

from __future__ import annotations

import sys
import time
from dataclasses import replace
from typing import Any

import jax
import numpy as np
from scipy.stats import spearmanr

import scafflix as sx
from scafflix.core.types import Floats
from scafflix.problems.curvature import curvatures
from scafflix.runs.assembly import resolve
from scafflix.runs.config import RunConfig, assigned, build
from scafflix.runs.runner import Runner

ASKED: dict[str, Any] = {
    "data": "femnist",
    "model": "cnn",
    "clients": 50,
    "method": "fedavg",
    "alpha": 1.0,
    "optima": "common",
    "keep": "global",
    "looks": "0,10,30,100",
}


def main(words: list[str]) -> None:
    asked = {**ASKED, **assigned(words)}
    looks = [int(word) for word in asked.pop("looks").split(",")]
    config = build(RunConfig, asked)
    runner = Runner.of(config)
    problem, person = runner.problem, runner.person(resolve(config))
    assert person.x_star is not None
    there = curvatures(problem, person.x_star)
    tell("at x_i*", there, there)
    for rounds in looks:
        began, x = time.perf_counter(), problem.start(config.model_seed)
        if rounds:
            made = runner.run(replace(config, rounds=rounds, every=rounds))
            x = jax.tree.unflatten(jax.tree.structure(x), list(made.models.values()))
        tell(f"after {rounds} rounds", curvatures(problem, x), there)
        print(f"  {time.perf_counter() - began:.0f} s", file=sys.stderr)


def tell(where: str, found: Floats, there: Floats) -> None:
    """A line: the middle of L_i, its 90th over its 10th percentile, the correlation of ranks."""
    low, middle, high = np.percentile(found, [10, 50, 90])
    rank = spearmanr(found, there).statistic
    print(f"{where}: median {middle:.3g}, p90/p10 {high / low:.2f}, rank correlation {rank:.2f}")


if __name__ == "__main__":
    sx.use_all_cores()
    main(sys.argv[1:])
