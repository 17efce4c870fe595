"""Figures of how good models are: every line tuned on validation data, then run with every seed.

A figure is a file of panels and lines in figures/; what its panels share is the file of their
data set, at three scales. Runs are cached, so that figures share them and a stopped one goes on.

What is tried for a line are the stepsizes of its panel's grid, each with every one of the line's
own `tries`. Where a panel has `divisions`, the data are divided into parts anew as often, and each
division is tuned by itself.
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
from scafflix.runs.studies import chosen_panels
from scafflix.runs.tuning import Cell, best, cell

Setting = dict[str, Any]  # keys of a run and their values


class Trial(NamedTuple):
    """A setting, and how good it is on validation data."""

    setting: Setting
    cell: Cell


class Line(NamedTuple):
    """One curve: the same configuration with every seed, or for every division of the data."""

    label: str
    chosen: list[Setting]  # for each division
    records: list[Record]


class Panel(NamedTuple):
    """One picture, and what was tried for it."""

    title: str
    lines: list[Line]
    tried: dict[str, list[Trial]]  # by the label of a line


class Task(NamedTuple):
    """A line before it is run."""

    label: str
    config: RunConfig
    tuning: RunConfig  # what its settings are chosen with
    tries: tuple[Setting, ...]  # changes to both
    seeds: int
    by_loss: bool  # how they are chosen; else by the score

    @property
    def runs_off(self) -> bool:
        """Whether the two best settings go the whole way before one is chosen: few rounds
        favour small steps."""
        return len(self.tries) > 1 and self.tuning.rounds < self.config.rounds

    @property
    def configs(self) -> list[RunConfig]:
        """One of each kind of run that it takes."""
        return [
            *(replace(self.tuning, **setting) for setting in self.tries),
            *(replace(self.config, **setting) for setting in self.tries[:1]),
        ]

    @property
    def runs(self) -> int:
        """How many there are to make, unless some diverge."""
        return len(self.tries) + 2 * self.runs_off + self.seeds


def reproduce(
    name: str,
    scale: Scale,
    changes: Mapping[str, Any] | None = None,
    progress: Progress | None = None,
    checkpoints: Checkpoints = NOWHERE,
) -> list[Panel]:
    """The panels of a figure, all or those that `changes` number; other changes are of keys, for
    every panel."""
    plans = list(_plans(name, scale, changes or {}))
    _check([task for _, tasks in plans for task in tasks])
    total = sum(task.runs for _, tasks in plans for task in tasks)
    count = itertools.count()
    runners: dict[Any, Runner] = {}
    panels = []
    for title, tasks in plans:
        lines: dict[str, Line] = {}
        tried: dict[str, list[Trial]] = {}
        for task in tasks:
            problem = str(sorted(_problem(task.config).items()))
            if problem not in runners:
                # one at a time in memory
                runners = {problem: Runner.of(task.config, checkpoints)}
            line, trials = _line(runners[problem], task, count, total, progress)
            before = lines.setdefault(task.label, Line(task.label, [], []))
            before.chosen.extend(line.chosen)
            before.records.extend(line.records)
            tried.setdefault(task.label, []).extend(trials)
        panels.append(Panel(title, list(lines.values()), tried))
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
    settings = figure_settings(name)
    changes = dict(changes)
    for panel in chosen_panels(settings["panels"], changes.pop("panels", None)):
        shared = figure_settings(panel["on"])
        base = {**shared["common"], **shared[scale]}
        base |= {**panel.get("common", {}), **panel.get(scale, {}), **changes}
        (divisions,) = _numbers("divisions", base.pop("divisions", 1), int)
        lines = panel["lines"] if "lines" in panel else settings["lines"][panel["compares"]]
        yield (
            panel["title"],
            [
                task
                for division in range(divisions)
                for task in _tasks(
                    lines, {**base, "data_seed": division} if division else base, scale
                )
            ],
        )


def _tasks(lines: list[dict[str, Any]], base: dict[str, Any], scale: Scale) -> Iterator[Task]:
    """The lines of a panel, on one division of its data."""
    base = dict(base)
    grid = base.pop("grid", ["auto"])
    stepsizes = ("auto",) if grid == ["auto"] else _numbers("grid", grid, float)
    (seeds,) = _numbers("seeds", base.pop("seeds"), int)
    (tuning_rounds,) = _numbers("tuning_rounds", base.pop("tuning_rounds"), int)
    by_loss = base.pop("by", "score") == "loss"
    for line in lines:
        own = {key: value for key, value in line.items() if key not in ("label", "tries")}
        if "cohort" in own and scale is Scale.smoke:
            own["cohort"] = min(own["cohort"], *_numbers("clients", base["clients"], int))
        config = _run_of({**base, **own, "keep": "none"})
        # a stepsize is chosen for a method as the data set's file has it, not for every
        # line: gamma steps in the space of the clients' models, whatever alpha, tau and p
        alpha = config.alpha if config.alpha == 1 else base["alpha"]
        kept = {key: own[key] for key in own if key in ("method", "pace", "individual")}
        tuning = {"alpha": alpha, "rounds": tuning_rounds}
        tuning |= {"part": "validation", "keep": "none"}
        if "every" in base:
            tuning["every"] = tuning_rounds
        trial = _run_of({**base, **kept, **tuning})
        tries = tuple(
            {**setting, "stepsize": stepsize}
            for setting in line.get("tries", [{}])
            for stepsize in stepsizes
        )
        yield Task(line["label"], config, trial, tries, seeds, by_loss)


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
) -> tuple[Line, list[Trial]]:
    def run(config: RunConfig, what: str) -> Record:
        number = next(count)

        def report(done: int, rounds: int, state: Standing | str) -> None:
            if progress is not None:
                progress(number, total, f"{task.label}, {what}: {done}/{rounds}, {state}")

        return runner.cached_run(config, report)

    def attempt(setting: Setting, rounds: int) -> Trial:
        config = replace(task.tuning, **setting, rounds=rounds)
        config = replace(config, every=rounds) if config.every is not None else config
        return Trial(setting, cell(config, run(config, f"trying {in_words(setting)}")))

    def rank(trials: list[Trial]) -> Trial:
        metric = runner.problem.network.metric
        first = best([one.cell for one in trials], metric, by_loss=task.by_loss)
        return next(one for one in trials if one.cell is first)

    tried = [attempt(setting, task.tuning.rounds) for setting in task.tries]
    first = rank(tried)
    rest = [one for one in tried if one is not first and math.isfinite(one.cell.score)]
    finals = [first, rank(rest)] if rest else [first]
    if task.runs_off:
        finals = [attempt(one.setting, task.config.rounds) for one in finals]
    chosen = rank(finals).setting
    config = replace(task.config, **chosen)
    records = [run(replace(config, seed=seed), f"seed {seed}") for seed in range(task.seeds)]
    return Line(task.label, [chosen], records), [*tried, *finals]


def in_words(setting: Setting) -> str:
    """A setting in a line.

    >>> in_words({"method": "ditto:pull=1.0", "stepsize": 0.1})
    'method ditto:pull=1.0, stepsize 0.1'
    """
    return ", ".join(f"{name} {value}" for name, value in setting.items())


def _problem(config: RunConfig) -> dict[str, Any]:
    """What a runner is made for."""
    resolved = plain(resolve(config))
    return {entry.name: resolved.get(entry.name) for entry in fields(ProblemConfig)}
