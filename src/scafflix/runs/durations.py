"""How long the runs of a figure take on this machine, before they are made."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from scafflix.core.progress import Standing
from scafflix.models import is_network
from scafflix.runs.assembly import rounds_of
from scafflix.runs.config import RunConfig, Scale
from scafflix.runs.reproduction import Task, plans
from scafflix.runs.runner import Runner

TIMED = 6  # rounds, of which the first compiles


class Foreseen(NamedTuple):
    """What is ahead, if nothing of it is in the cache."""

    runs: int
    steps: float  # local steps of a client, of all runs
    seconds: float  # those alone: without local optima and looks

    def __str__(self) -> str:
        """In words.

        >>> print(Foreseen(4, 2e5, 5400.0))
        4 runs with 200,000 local steps of a client: about 1.5 h here, less what is in the cache
        """
        hours = self.seconds / 3600
        spent = f"{hours:.2g} h" if hours >= 1 else f"{max(1, round(60 * hours))} min"
        ahead = f"{self.runs} runs with {self.steps:,.0f} local steps of a client"
        return f"{ahead}: about {spent} here, less what is in the cache"


def foreseen(name: str, scale: Scale, changes: Mapping[str, Any]) -> Foreseen | None:
    """Of a figure of networks, by a few rounds on each of its data sets; None of linear models."""
    runs, steps, seconds = 0, 0.0, 0.0
    rates: dict[str, float] = {}
    for _, tasks in plans(name, scale, changes):
        if not is_network(tasks[0].config.model):
            continue
        ahead = {str(config): config for task in tasks for config in _runs_of(task)}
        panel = sum(map(_steps, ahead.values()))
        model = f"{tasks[0].config.data}, {tasks[0].config.model}"
        if model not in rates:
            rates[model] = steps_a_second(Runner.of(tasks[0].config), tasks[0].config)
        runs, steps = runs + len(ahead), steps + panel
        seconds += panel / rates[model]
    return Foreseen(runs, steps, seconds) if runs else None


def steps_a_second(runner: Runner, config: RunConfig) -> float:
    """Local steps of clients a second, of FedAvg in a few rounds of this size."""
    seen: list[tuple[float, int]] = []

    def look(done: int, rounds: int, state: Standing | str) -> None:
        if isinstance(state, Standing) and done < rounds:  # the last one is looked at
            seen.append((time.perf_counter(), state.steps))

    asked: dict[str, Any] = {"method": "fedavg", "alpha": 1.0, "optima": "none", "keep": "none"}
    asked |= {"rounds": TIMED, "every": TIMED, "part": "validation", "individual": False}
    runner.sweep([replace(config, **asked)], look, scores=False)
    (began, before), (ended, after) = seen[0], seen[-1]
    return (after - before) / (ended - began)


def _runs_of(task: Task) -> list[RunConfig]:
    """Those that it takes, settings that are compared again by the first of them."""
    compared = [
        replace(task.tuning, **setting, rounds=rounds)
        for settings, rounds in task.compared
        for setting in task.tries[:settings]
    ]
    config = replace(task.config, **task.tries[0])
    return [*compared, *(replace(config, seed=seed) for seed in range(task.seeds))]


def _steps(config: RunConfig) -> float:
    assert not isinstance(config.p, str)
    return rounds_of(config) * (config.cohort or 1) / config.p
