"""The local optimum stage: each client's own x_i*, by stochastic gradients from one start.

A network's f_i has many optima, and the start decides which is found. Training stops early, when
the loss on the client's validation examples no longer falls, and the best point is kept. What was
found is cached on disk under a key made of everything that determines it.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from numpy.typing import NDArray

from scafflix.core import durable, streams
from scafflix.core.cache import cache_folder
from scafflix.core.checkpoint import NOWHERE, Checkpoints
from scafflix.core.digest import digest_of
from scafflix.core.durable import Arrays, DamagedError, Facts
from scafflix.core.errors import ScafflixError
from scafflix.core.progress import Progress
from scafflix.core.store import Store, disk_errors
from scafflix.core.streams import Stream
from scafflix.data.federation import Federation
from scafflix.models.network import Params
from scafflix.personalization.finding import find
from scafflix.personalization.lengths import LEAST, Length, choose_length, triers
from scafflix.personalization.recipe import GRID, Recipe, checked_recipe
from scafflix.personalization.rules import validation
from scafflix.personalization.rules.contract import Evidence
from scafflix.problems.evaluation import ALONE, evaluate
from scafflix.problems.problem import Problem

SAMPLE = 6  # clients on which the learning rate is chosen
AT_ONCE = 4  # clients of a device, between checkpoints
NEARLY = 1.01  # times the least loss
RECIPE = 3  # to be raised when the same recipe gives other points or files
POINTS, QUALITY = "x_star.f32", "quality.safetensors"


class LocalOptima(NamedTuple):
    """x_i* of every client, and how good it is for it."""

    x_star: Store
    stepsize: float
    # per client: steps, and loss and score on train and validation data
    quality: Mapping[str, NDArray[Any]]
    length: Length | None = None  # where the number of steps was chosen


def local_optima(
    problem: Problem,
    start: Params,
    recipe: Recipe,
    progress: Progress | None = None,
    checkpoints: Checkpoints = NOWHERE,
    place: Path | None = None,
) -> LocalOptima:
    """Every client's x_i* from a common start; from a folder in this place, by default the cache,
    if it was found before."""
    check_validation(problem.federation)
    recipe = checked_recipe(recipe)
    folder = (place or cache_folder() / "optima") / _key(problem, start, recipe)
    with disk_errors(folder), durable.making(folder):
        if not (folder / QUALITY).exists():
            checkpoints.announce()
            aside = folder.with_name(folder.name + ".part")
            _find_all(problem, start, recipe, aside, progress, checkpoints)
            os.replace(aside, folder)
            durable.flush_folder(folder.parent)
        advice = f" Remove the folder {folder}."
        found = durable.read(folder / QUALITY, advice)
        assert found is not None
        facts, (checks, *columns) = found
        store = Store(problem.template, problem.n, folder / POINTS)
        try:
            store.restore(checks)
        except DamagedError as error:
            raise ScafflixError(f"{error}{advice}") from None
    quality = dict(zip(facts["columns"], columns, strict=True))
    length = Length(*facts["length"]) if "length" in facts else None
    return LocalOptima(store, facts["stepsize"], quality, length)


def check_validation(federation: Federation) -> None:
    """Refuse data by which no client's training can stop early."""
    if federation.validation is None:
        raise ScafflixError(
            "Local optima are stopped early by validation data, and there are none; "
            "give validation, such as 0.1."
        )
    without = np.flatnonzero(federation.validation.counts == 0)
    if len(without):
        raise ScafflixError(
            f"Client {federation.clients[without[0]]} has no validation examples to stop its "
            "local optimum with; give min_examples, such as 1, to leave it out."
        )


def _find_all(
    problem: Problem,
    start: Params,
    recipe: Recipe,
    folder: Path,
    progress: Progress | None,
    checkpoints: Checkpoints,
) -> None:
    """Client after client into the folder; goes on where a stopped process left off.

    Rows are only ever added, so that every checkpoint finds those it knows of as they were.
    """
    report = progress or (lambda *_: None)
    trail = checkpoints.trail({}, folder / "checkpoint")
    store: Store
    stepsize, rates, steps = recipe.stepsize, dict[str, float](), list[int]()
    length: Length | None = None

    def take(done: int, facts: Facts, arrays: Arrays) -> None:
        nonlocal store, stepsize, rates, steps, length
        store = Store(problem.template, problem.n, folder / POINTS)
        store.restore(arrays[1])
        stepsize, rates, steps = facts["stepsize"], facts["rates"], arrays[0].tolist()
        length = Length(*facts["length"]) if "length" in facts else None

    def save() -> None:
        trail.save(len(steps), facts, (np.array(steps), store.snapshot()[: len(steps)]))

    if not trail.last(take):
        store = Store(problem.template, problem.n, folder / POINTS, fresh=True)
    at_once = AT_ONCE * problem.mesh.size
    with trail:
        if stepsize is None:
            stepsize, rates = _choose_stepsize(problem, start, recipe, report)
        facts: Facts = {"stepsize": stepsize, "rates": rates}
        if recipe.steps is None:
            length = length or _choose_length(
                problem, start, recipe, stepsize, store, report, trail.pause
            )
            recipe, facts = replace(recipe, steps=length.steps), facts | {"length": length}
            if length.tried_last and len(triers(problem.n, recipe.seed)) == problem.n:
                steps = [length.steps] * problem.n  # everybody is there already
                save()
        while len(steps) < problem.n:
            report(len(steps), problem.n, "local optima")
            clients = np.arange(len(steps), min(len(steps) + at_once, problem.n))
            found = find(problem, _copies(start, clients), recipe, stepsize, clients, at_once)
            store.write(clients, found.x)
            steps += found.steps.tolist()
            save()
            trail.pause()
    columns = {"local_steps": np.array(steps), **_quality(problem, start, store)}
    facts |= {"columns": list(columns)}
    durable.write(folder / QUALITY, facts, [store.snapshot(), *columns.values()])
    shutil.rmtree(folder / "checkpoint")
    store.close()


def _choose_stepsize(
    problem: Problem, start: Params, recipe: Recipe, report: Progress
) -> tuple[float, dict[str, float]]:
    """The smallest rate of the grid with the least validation loss, or nearly, averaged over a few
    clients: it leaves the points nearer to their common start, and so better to mix."""
    drawn = streams.generator(recipe.seed, Stream.OPTIMA, 0)
    clients = np.sort(drawn.choice(problem.n, min(SAMPLE, problem.n), replace=False))
    recipe = replace(recipe, steps=recipe.steps or LEAST)
    points, at_once = _copies(start, clients), SAMPLE + -SAMPLE % problem.mesh.size
    losses: dict[str, float] = {}
    for number, rate in enumerate(GRID):
        report(number, len(GRID), f"local optima: trying the rate {rate:g}")
        found = find(problem, points, recipe, rate, clients, at_once)
        losses[f"{rate:g}"] = float(np.mean(found.loss))
    least = min(losses.values())
    return min(rate for rate in GRID if losses[f"{rate:g}"] <= NEARLY * least), losses


def _choose_length(
    problem: Problem,
    start: Params,
    recipe: Recipe,
    rate: float,
    store: Store,
    report: Progress,
    pause: Callable[[], None],
) -> Length:
    """For how many steps to tune. The points on the way are in the store, at the places of the
    clients that try; who is stopped here begins to try again."""
    clients, at_once, made = triers(problem.n, recipe.seed), AT_ONCE * problem.mesh.size, 0
    store.write(clients, _copies(start, clients))

    def tried(steps: int) -> Evidence:
        nonlocal made
        asked = replace(recipe, steps=steps)
        for first in range(0, len(clients), at_once):
            report(first, len(clients), f"local optima: trying {steps} steps")
            some = clients[first : first + at_once]
            found = find(problem, store.read(some), asked, rate, some, at_once, made)
            store.write(some, found.x)
            pause()
        made = asked.looks
        return validation.evidence(problem, store, start, clients)

    return choose_length(tried)


def _copies(start: Params, clients: NDArray[np.int64]) -> Params:
    """The common start of some clients."""
    return jax.tree.map(lambda leaf: np.broadcast_to(leaf, (len(clients), *np.shape(leaf))), start)


def _quality(problem: Problem, start: Params, store: Store) -> dict[str, NDArray[np.float64]]:
    table = {}
    for part in ("train", "validation"):  # the test data are for the end
        scores = evaluate(problem, part, start, ALONE, store)
        table[f"{part}_loss_local"] = np.where(np.isfinite(scores.loss), scores.loss, np.nan)
        table[f"{part}_local"] = scores.score
    return table


def _key(problem: Problem, start: Params, recipe: Recipe) -> str:
    """A digest of everything that determines the points: data, loss, start, recipe."""
    return digest_of(problem.identity, *jax.tree.leaves(start), [RECIPE, asdict(recipe)])
