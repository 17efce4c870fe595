"""Figures of how good models are: every line tuned on validation data, then run with every seed.

A figure is a file of panels and lines in figures/; what its panels share is the file of their
data set, at four scales. Runs are cached, so that figures share them and a stopped one goes on.

What is tried for a line are the stepsizes of its panel's grid, each with every one of the line's
own `tries`, by successive halving: all settings for a few rounds, the best for more. Where a panel
has `divisions`, the data are divided into parts anew as often, and each division is tuned by
itself.
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
from scafflix.models import is_network
from scafflix.record import Record
from scafflix.runs import refusals
from scafflix.runs.assembly import for_method, load_federation, resolve, served
from scafflix.runs.config import OPTIMA, WARM, ProblemConfig, RunConfig, Scale, build, plain
from scafflix.runs.runner import Runner, figure_settings
from scafflix.runs.studies import chosen_panels
from scafflix.runs.tuning import Cell, best, cell

Setting = dict[str, Any]  # keys of a run and their values
# of a line, that its settings are compared with
KEPT = ("method", "pace", "individual", "optima", "optima_batch", "optima_steps")
FEWER = 4  # of so many settings one is compared again, and at least two


class Trial(NamedTuple):
    """A setting, and how good it is on validation data."""

    setting: Setting
    cell: Cell


class Line(NamedTuple):
    """One curve: the same configuration with every seed, or for every division of the data."""

    label: str
    chosen: list[Setting]  # for each division
    records: list[Record]
    kind: str = "personal"  # of the models that it is about


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
    rungs: tuple[int, ...]  # rounds with which they are compared: few favour small steps
    seeds: int
    by_loss: bool  # how they are chosen; else by the score
    kind: str  # of the models that it is about: personal, global or local

    @property
    def compared(self) -> list[tuple[int, int]]:
        """How many settings are compared after how many rounds."""
        settings, made = len(self.tries), []
        for rounds in self.rungs if settings > 1 else ():
            made.append((settings, rounds))
            settings = min(settings, max(2, math.ceil(settings / FEWER)))
        return made

    @property
    def configs(self) -> list[RunConfig]:
        """One of each kind of run that it takes."""
        return [
            *(replace(self.tuning, **setting) for setting in self.tries if self.compared),
            *(replace(self.config, **setting) for setting in self.tries[:1]),
        ]

    @property
    def runs(self) -> int:
        """How many there are to make, unless some diverge."""
        return sum(settings for settings, _ in self.compared) + self.seeds


def reproduce(
    name: str,
    scale: Scale,
    changes: Mapping[str, Any] | None = None,
    progress: Progress | None = None,
    checkpoints: Checkpoints = NOWHERE,
) -> list[Panel]:
    """The panels of a figure and their lines, all or those that `changes` number; other changes are
    of keys, for every panel."""
    planned = list(plans(name, scale, changes or {}))
    _check([task for _, tasks in planned for task in tasks])
    total = sum(task.runs for _, tasks in planned for task in tasks)
    told = Told(itertools.count(), total, progress)
    runners: dict[str, Runner] = {}
    panels = []
    for title, tasks in planned:
        lines = {task.label: Line(task.label, [], [], task.kind) for task in tasks}
        tried: dict[str, list[Trial]] = {task.label: [] for task in tasks}
        for problem, group in itertools.groupby(tasks, lambda task: _problem(task.config)):
            some = list(group)
            if problem not in runners:
                # one at a time in memory
                runners = {problem: Runner.of(some[0].config, checkpoints)}
            runner = runners[problem]
            for task in some:
                setting, trials = _chosen(runner, task, told)
                lines[task.label].chosen.append(setting)
                tried[task.label].extend(trials)
            # a seed of every line before the next: a figure that is stopped has those with fewer
            for seed in range(max(task.seeds for task in some)):
                for task in some:
                    line = lines[task.label]
                    if seed < task.seeds:
                        config = replace(task.config, **line.chosen[-1], seed=seed)
                        line.records.append(told.run(runner, task, config, f"seed {seed}"))
        panels.append(Panel(title, list(lines.values()), tried))
    return panels


def _check(tasks: list[Task]) -> None:
    """Refuse what cannot work before the first run: by the keys, then with the data."""
    asked = [one for task in tasks for one in task.configs]
    for one in asked:
        refusals.check_keys(one)
    federations: dict[str, Federation] = {}
    for one in asked:
        problem = _problem(one)
        if problem not in federations:
            federations = {problem: load_federation(resolve(one))}  # one at a time in memory
        refusals.check_data(one, federations[problem])


def plans(name: str, scale: Scale, changes: Mapping[str, Any]) -> Iterator[tuple[str, list[Task]]]:
    """The lines of each panel before they are run."""
    settings = figure_settings(name)
    changes = dict(changes)
    some = changes.pop("lines", None)
    for panel in chosen_panels(settings["panels"], changes.pop("panels", None)):
        shared = figure_settings(panel["on"])
        base = {**shared["common"], **shared[scale if scale in shared else Scale.laptop]}
        for own in (settings, panel):  # what all panels of a figure have, and what this one has
            base |= {**own.get("common", {}), **own.get(scale, {})}
        base = {**_with_few(base, {**base, **changes}, scale), **changes}
        (divisions,) = _numbers("divisions", base.pop("divisions", 1), int)
        lines = panel["lines"] if "lines" in panel else settings["lines"][panel["compares"]]
        lines = chosen_panels(lines, some, "line")
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
    rungs = _rungs(base.pop("tuning_rounds"), *_numbers("rounds", base["rounds"], int))
    by_loss = base.pop("by", "score") == "loss"
    for line in lines:
        own = {key: line[key] for key in line if key not in ("label", "tries", "kind")}
        own = _with_few(own, base, scale)
        config = _run_of({**base, **own, "keep": "none"})
        # a stepsize is chosen for a method as the data set's file has it, not for every
        # line: gamma steps in the space of the clients' models, whatever alpha, tau and p
        alpha = config.alpha if config.alpha == 1 else base["alpha"]
        kept = {key: own[key] for key in own if key in KEPT}
        tries = line.get("tries", [{}])
        tuning = {"alpha": alpha, "part": "validation", "keep": "none"}
        if is_network(config.model) and alpha == 1 and not any("alpha" in one for one in tries):
            tuning["optima"] = "none"
        trial = _run_of({**base, **kept, **tuning})
        settings = tuple(
            {**setting, "stepsize": stepsize} for setting in tries for stepsize in stepsizes
        )
        kind = line.get("kind", "personal")
        yield Task(line["label"], config, trial, settings, rungs, seeds, by_loss, kind)


def _with_few(keys: Setting, base: Setting, scale: Scale) -> Setting:
    """With a cohort of no more clients than there are, where a figure is made with a few."""
    if scale is not Scale.smoke or "cohort" not in keys:
        return keys
    return {**keys, "cohort": min(keys["cohort"], *_numbers("clients", base["clients"], int))}


def _rungs(given: Any, rounds: int) -> tuple[int, ...]:
    """With one number, the best of the first comparison go the whole way before one is chosen."""
    rungs = _numbers("tuning_rounds", given, int)
    return (*rungs, rounds) if len(rungs) == 1 and rungs[0] < rounds else rungs


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


class Told(NamedTuple):
    """Runs whose progress is told, with how many of all there are."""

    numbers: Iterator[int]
    total: int
    progress: Progress | None

    def run(self, runner: Runner, task: Task, config: RunConfig, what: str) -> Record:
        number = next(self.numbers)

        def report(done: int, rounds: int, state: Standing | str) -> None:
            if self.progress is not None:
                words = f"{task.label}, {what}: {done}/{rounds}, {state}"
                self.progress(number, self.total, words)

        return runner.cached_run(config, report)


def _chosen(runner: Runner, task: Task, told: Told) -> tuple[Setting, list[Trial]]:
    """The setting that is best on validation data, and all that were tried."""

    def attempt(setting: Setting, rounds: int) -> Trial:
        config = replace(task.tuning, **setting, rounds=rounds)
        config = replace(config, every=rounds) if config.every is not None else config
        made = told.run(runner, task, config, f"trying {in_words(setting)}")
        return Trial(setting, cell(config, made))

    def ranked(trials: list[Trial]) -> list[Trial]:
        """The best first, without those that diverged."""
        metric, left, found = runner.problem.network.metric, list(trials), list[Trial]()
        while not found or any(math.isfinite(one.cell.score) for one in left):
            first = best([one.cell for one in left], metric, by_loss=task.by_loss)
            found += [one for one in left if one.cell is first]
            left = [one for one in left if one.cell is not first]
        return found

    settings, tried = list(task.tries), list[Trial]()
    for kept, rounds in task.compared:
        trials = [attempt(setting, rounds) for setting in settings[:kept]]
        settings, tried = [one.setting for one in ranked(trials)], [*tried, *trials]
    return settings[0], tried


def in_words(setting: Setting) -> str:
    """A setting in a line.

    >>> in_words({"method": "ditto:pull=1.0", "stepsize": 0.1})
    'method ditto:pull=1.0, stepsize 0.1'
    """
    return ", ".join(f"{name} {value}" for name, value in setting.items())


def _problem(config: RunConfig) -> str:
    """What a runner is made for, in words."""
    resolved = plain(resolve(config))
    return str(sorted((entry.name, resolved.get(entry.name)) for entry in fields(ProblemConfig)))
