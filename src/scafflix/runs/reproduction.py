"""The paper's figures on networks: every line tuned on validation data, then run with every seed.

A figure is a file of panels and lines in figures/; what its panels share is the file of their
data set, at three scales. Runs are cached, so that figures share them and a stopped one goes on.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping
from dataclasses import fields, replace
from typing import Any, NamedTuple

from scafflix.core.checkpoint import NOWHERE, Checkpoints
from scafflix.core.errors import ScafflixError
from scafflix.core.progress import Progress, Standing
from scafflix.data import Federation
from scafflix.record import Record
from scafflix.runs import refusals
from scafflix.runs.assembly import for_method, load_federation, resolve, served
from scafflix.runs.config import OPTIMA, WARM, ProblemConfig, RunConfig, Scale, build, plain
from scafflix.runs.runner import Runner, figure_settings
from scafflix.runs.tuning import Cell, best, cell


class Line(NamedTuple):
    """One curve: the same configuration with every seed."""

    label: str
    stepsize: float
    records: list[Record]


class Panel(NamedTuple):
    """One picture, and the grids of stepsizes that were searched for it."""

    title: str
    lines: list[Line]
    tried: dict[str, list[Cell]]  # by the label of a line


class Task(NamedTuple):
    """A line before it is run."""

    label: str
    config: RunConfig
    tuning: RunConfig  # what its stepsize is chosen with
    grid: tuple[float, ...]
    seeds: int

    @property
    def runs_off(self) -> bool:
        """Whether the two best stepsizes go the whole way before one is chosen: few rounds
        favour small steps."""
        return len(self.grid) > 1 and self.tuning.rounds < self.config.rounds

    @property
    def configs(self) -> list[RunConfig]:
        """One of each kind of run that it takes."""
        return [
            *(replace(self.tuning, stepsize=stepsize) for stepsize in self.grid),
            replace(self.config, stepsize=self.grid[0]),
        ]

    @property
    def runs(self) -> int:
        """How many there are to make, unless stepsizes diverge."""
        return len(self.grid) + 2 * self.runs_off + self.seeds


def reproduce(
    name: str,
    scale: Scale,
    changes: Mapping[str, Any] | None = None,
    progress: Progress | None = None,
    checkpoints: Checkpoints = NOWHERE,
) -> list[Panel]:
    """The panels of a figure; `changes` to the configuration hold for all of them."""
    plans = list(_plans(name, scale, changes or {}))
    _check([task for _, tasks in plans for task in tasks])
    total = sum(task.runs for _, tasks in plans for task in tasks)
    count = itertools.count()
    runners: dict[Any, Runner] = {}
    panels = []
    for title, tasks in plans:
        lines, tried = [], {}
        for task in tasks:
            problem = str(sorted(_problem(task.config).items()))
            if problem not in runners:
                # one at a time in memory
                runners = {problem: Runner.of(task.config, checkpoints)}
            line, cells = _line(runners[problem], task, count, total, progress)
            lines.append(line)
            tried[task.label] = cells
        panels.append(Panel(title, lines, tried))
    return panels


def _check(tasks: list[Task]) -> None:
    """Refuse what cannot work before the first run: by the keys, then with the data."""
    asked = [one for task in tasks for one in task.configs]
    for one in asked:
        refusals.check_keys(one)
    federations: dict[str, Federation] = {}
    for one in asked:
        problem = str(sorted(_problem(one).items()))
        if problem not in federations:
            federations = {problem: load_federation(resolve(one))}  # one at a time in memory
        refusals.check_data(one, federations[problem])


def _plans(name: str, scale: Scale, changes: Mapping[str, Any]) -> Iterator[tuple[str, list[Task]]]:
    for panel in figure_settings(name)["panels"]:
        shared = figure_settings(panel["on"])
        base = {**shared["common"], **shared[scale]}
        base |= {**panel.get("common", {}), **panel.get(scale, {}), **changes}
        grid = _numbers("grid", base.pop("grid"), float)
        (seeds,) = _numbers("seeds", base.pop("seeds"), int)
        (tuning_rounds,) = _numbers("tuning_rounds", base.pop("tuning_rounds"), int)
        tasks = []
        for line in panel["lines"]:
            own = {key: value for key, value in line.items() if key != "label"}
            if "cohort" in own and scale is Scale.smoke:
                own["cohort"] = min(own["cohort"], *_numbers("clients", base["clients"], int))
            config = _run_of({**base, **own, "keep": "none"})
            # a stepsize is chosen for a method as the data set's file has it, not for every
            # line: gamma steps in the space of the clients' models, whatever alpha, tau and p
            alpha = config.alpha if config.alpha == 1 else base["alpha"]
            kept = {key: own[key] for key in ("method", "pace", "individual") if key in own}
            tuning = {"alpha": alpha, "rounds": tuning_rounds, "every": tuning_rounds}
            tuning |= {"part": "validation", "keep": "none"}
            trial = _run_of({**base, **kept, **tuning})
            tasks.append(Task(line["label"], config, trial, grid, seeds))
        yield panel["title"], tasks


def _run_of(values: Mapping[str, Any]) -> RunConfig:
    """One run, without what its data set's file says of other methods and local optima."""
    config = for_method(build(RunConfig, values))
    unread = {OPTIMA, WARM} - served(config)
    known = [one for one in fields(config) if one.metadata["only"] in unread]
    other: dict[str, Any] = {one.name: one.default for one in known}
    return replace(config, **other)


def _numbers(name: str, given: Any, kind: type[Any]) -> tuple[Any, ...]:
    """A number, a list, or words separated by commas."""
    several = given.split(",") if isinstance(given, str) else given
    try:
        return tuple(map(kind, several if isinstance(several, list | tuple) else [several]))
    except ValueError:
        raise ScafflixError(f"{name} is {given!r}; give numbers.") from None


def _line(
    runner: Runner,
    task: Task,
    count: Iterator[int],
    total: int,
    progress: Progress | None,
) -> tuple[Line, list[Cell]]:
    def run(config: RunConfig, what: str) -> Record:
        number = next(count)

        def report(done: int, rounds: int, state: Standing | str) -> None:
            if progress is not None:
                progress(number, total, f"{task.label}, {what}: {done}/{rounds}, {state}")

        return runner.cached_run(config, report)

    def attempt(stepsize: float, rounds: int) -> Cell:
        config = replace(task.tuning, stepsize=stepsize, rounds=rounds, every=rounds)
        return cell(config, run(config, f"trying the stepsize {stepsize:g}"))

    metric = runner.problem.network.metric
    cells = [attempt(stepsize, task.tuning.rounds) for stepsize in task.grid]
    first = best(cells, metric)
    rest = [one for one in cells if one is not first and math.isfinite(one.score)]
    finals = [first, best(rest, metric)] if rest else [first]
    if task.runs_off:
        finals = [attempt(one.stepsize, task.config.rounds) for one in finals]
    stepsize = best(finals, metric).stepsize
    chosen = replace(task.config, stepsize=stepsize)
    records = [run(replace(chosen, seed=seed), f"seed {seed}") for seed in range(task.seeds)]
    return Line(task.label, stepsize, records), [*cells, *finals]


def _problem(config: RunConfig) -> dict[str, Any]:
    """What a runner is made for."""
    resolved = plain(resolve(config))
    return {entry.name: resolved.get(entry.name) for entry in fields(ProblemConfig)}
