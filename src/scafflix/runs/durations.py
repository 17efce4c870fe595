"""How long the runs of a figure take on this machine, before they are made."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from scafflix.core.progress import Standing
from scafflix.core.vector import Vector
from scafflix.gradients import points_of
from scafflix.methods.method import Client, Method
from scafflix.models import is_network
from scafflix.models.naming import array_names
from scafflix.runs import refusals
from scafflix.runs.assembly import rounds_of
from scafflix.runs.config import RunConfig, Scale
from scafflix.runs.reproduction import Task, plans
from scafflix.runs.runner import Runner

TIMED = 6  # rounds, of which the first compiles


class Foreseen(NamedTuple):
    """What is ahead, if nothing of it is in the cache."""

    runs: int
    gradients: float  # of clients' batches, in all runs
    seconds: float  # for those alone: without local optima and looks

    def __str__(self) -> str:
        """In words.

        >>> print(Foreseen(4, 2e5, 5400.0))
        4 runs with 200,000 gradients of batches: about 1.5 h here, less what is in the cache
        """
        hours = self.seconds / 3600
        spent = f"{hours:.2g} h" if hours >= 1 else f"{max(1, round(60 * hours))} min"
        ahead = f"{self.runs} runs with {self.gradients:,.0f} gradients of batches"
        return f"{ahead}: about {spent} here, less what is in the cache"


def foreseen(name: str, scale: Scale, changes: Mapping[str, Any]) -> Foreseen | None:
    """Of a figure of networks, by a few rounds on each of its data sets; None of linear models."""
    runs, gradients, seconds = 0, 0.0, 0.0
    rates: dict[str, float] = {}
    for _, tasks in plans(name, scale, changes):
        if not is_network(tasks[0].config.model):
            continue
        ahead = {str(config): config for task in tasks for config in _runs_of(task)}
        panel = sum(map(_gradients, ahead.values()))
        model = f"{tasks[0].config.data}, {tasks[0].config.model}"
        if model not in rates:
            rates[model] = steps_a_second(Runner.of(tasks[0].config), tasks[0].config)
        runs, gradients = runs + len(ahead), gradients + panel
        seconds += panel / rates[model]
    return Foreseen(runs, gradients, seconds) if runs else None


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


def _gradients(config: RunConfig) -> float:
    method = refusals.trial(config)
    steps = rounds_of(config) * (config.cohort or 1) / float(method.p)
    return steps * _asked(method, array_names(config.model))


def _asked(method: Method, names: Sequence[str]) -> int:
    """At how many points a client wants a gradient in a step, with a model of these arrays."""
    x = Vector({name: np.zeros(()) for name in names})
    client = Client(1.0, 1.0, x)
    state, sent = method.init_client(client, x, x), method.broadcast(method.init_server(x))
    points, _ = points_of(method.asks(client, state, sent, method.begin(client, state, sent)))
    return len(points)
