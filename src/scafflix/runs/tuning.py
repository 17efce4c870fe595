"""Choosing a stepsize on validation data; the test data are touched once, with the winner.

Every cell of the grid is a file of its own, so that a search that was stopped goes on.
"""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from scafflix.core import durable
from scafflix.core.checkpoint import NOWHERE, Checkpoints
from scafflix.core.digest import digest_of
from scafflix.core.errors import DivergenceError, ScafflixError
from scafflix.core.folders import check_new_folder, file_name
from scafflix.core.plugins import source_of
from scafflix.core.progress import Progress
from scafflix.core.versions import versions
from scafflix.personalization.alphas import read_alpha
from scafflix.record import Record
from scafflix.runs import refusals
from scafflix.runs.assembly import SHARE, one_run
from scafflix.runs.config import RunConfig, TuneConfig, plain
from scafflix.runs.runner import Runner
from scafflix.runs.values import Auto
from scafflix.simulate.run import part_of

CELLS = "cells"


class Cell(NamedTuple):
    """One stepsize of one method."""

    method: str
    stepsize: Auto
    score: float  # the personal models on validation data; NaN where the run diverged
    diverged: int | None  # the round in which it did
    loss: float = 0.0  # on the same data


class Tuned(NamedTuple):
    """The grid, and the winner of each method on the test data."""

    metric: str
    cells: list[Cell]
    winners: dict[str, Record]


def best(cells: list[Cell], metric: str, *, by_loss: bool = False) -> Cell:
    """The cell with the best score; where two are level, the smaller loss, then stepsize. Or the
    one with the least loss."""
    finite = [cell for cell in cells if math.isfinite(cell.score)]
    if not finite:
        raise ScafflixError(
            f"Every stepsize of the grid diverged for {cells[0].method}; give smaller ones."
        )
    if by_loss:
        return min(finite, key=lambda cell: cell.loss)
    sign = 1 if metric == "accuracy" else -1

    def merit(cell: Cell) -> tuple[float, ...]:
        small = 0.0 if isinstance(cell.stepsize, str) else -cell.stepsize
        return sign * cell.score, -cell.loss, small

    return max(finite, key=merit)


def score(record: Record, part: str, kind: str = "personal") -> float:
    """The mean over all held-out examples; NaN for a run that diverged."""
    return _over_examples(record, part, kind, "examples", f"{part}_{kind}")


def loss(record: Record, part: str) -> float:
    """The same of the loss of the personal models."""
    return _over_examples(record, part, "personal", "loss", f"{part}_loss_personal")


def _over_examples(record: Record, part: str, kind: str, entry: str, column: str) -> float:
    if record.summary.get("diverged") is not None:
        return math.nan
    if "scores" in record.summary:  # of a network: over characters, where examples are texts
        return float(record.summary["scores"][part][kind][entry])
    values, weights = record.clients[column], record.clients[f"{part}_examples"]
    known = weights > 0
    return float(np.average(values[known], weights=weights[known]))


def cell(config: RunConfig, record: Record) -> Cell:
    """What a run says of its stepsize."""
    diverged = record.summary.get("diverged")
    at = None if diverged is None else diverged["round"]
    found = score(record, "validation")
    return Cell(config.method, config.stepsize, found, at, loss(record, "validation"))


def tune(
    config: TuneConfig,
    folder: Path,
    progress: Progress | None = None,
    checkpoints: Checkpoints = NOWHERE,
) -> Tuned:
    """Every method with every stepsize, then the winners with the test data."""
    for stepsize in config.stepsizes:
        if isinstance(stepsize, str) or not 0 < stepsize < math.inf:
            raise ScafflixError(f"stepsizes has {stepsize!r}; give numbers above 0.")
    if config.part != "test":
        raise ScafflixError(
            "part is for single runs and comparisons; tune chooses on validation data and tests "
            "the winners. Leave it out."
        )
    if config.validation is None:
        config = replace(config, validation=SHARE)
    asked = [
        _one(config, method, stepsize) for method in config.methods for stepsize in config.stepsizes
    ]
    for one in (*asked, replace(asked[0], keep=config.keep)):
        refusals.check_keys(one)
    check_new_folder(folder / CELLS, force=True)
    runner = Runner.of(config)
    for one in asked:
        runner.check(one)
    checkpoints.announce()
    cells: list[Cell] = []
    metric = "accuracy"
    for number, one in enumerate(asked):
        part = progress and part_of(progress, number, len(asked) + len(config.methods))
        place = checkpoints.within(f"{file_name(one.method)}-{one.stepsize:g}-{one.part}")
        found, known = _cell(one, runner, folder / CELLS, part, place)
        cells.append(found)
        metric = known or metric
    winners = {}
    for number, method in enumerate(config.methods):
        chosen = best([one for one in cells if one.method == method], metric)
        part = progress and part_of(progress, len(asked) + number, len(asked) + len(config.methods))
        final = replace(_one(config, method, chosen.stepsize), part="test", keep=config.keep)
        place = checkpoints.within(f"{file_name(method)}-{chosen.stepsize:g}-test")
        winners[method] = runner.at(place).run(final, part)
    return Tuned(metric, cells, winners)


def _one(config: TuneConfig, method: str, stepsize: Any) -> RunConfig:
    own = {"method": method, "alpha": config.alpha, "stepsize": stepsize, "seed": config.seed}
    return one_run(config, **own, part="validation", keep="none")


def _cell(
    one: RunConfig,
    runner: Runner,
    folder: Path,
    progress: Progress | None,
    checkpoints: Checkpoints,
) -> tuple[Cell, str | None]:
    """A cell from its file, or by a run that then leaves the file."""
    problem = runner.problem
    alpha = read_alpha(one.alpha, problem.n)
    made_by = {**versions(), "commit": ""}
    name = digest_of(plain(one), problem.identity, alpha, made_by, source_of(one.method))[:8]
    file = folder / f"{file_name(one.method)}-{one.stepsize:g}-{name}.json"
    if not file.exists():
        try:
            record = runner.at(checkpoints).run(one, progress)
            found, metric = cell(one, record), record.summary["metric"]
        except DivergenceError as error:
            found, metric = Cell(one.method, one.stepsize, math.nan, error.round), None
        made = {**found._asdict(), "metric": metric}
        if not math.isfinite(found.score):
            made["score"] = None
        durable.new_folder(folder)
        durable.put(file, [json.dumps(made).encode()])
    try:
        kept = json.loads(file.read_text())
        metric = kept.pop("metric")
        kept["score"] = math.nan if kept["score"] is None else kept["score"]
        return Cell(**kept), metric
    except (ValueError, KeyError, TypeError):
        raise ScafflixError(f"{file} does not hold a cell of a grid; remove it.") from None
