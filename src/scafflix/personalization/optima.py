"""The local optimum stage: each client's own x_i*, by stochastic gradients from one start.

A network's f_i has many optima, and the start decides which is found. Training stops early, when
the loss on the client's validation examples no longer falls, and the best point is kept. What was
found is cached on disk under a key made of everything that determines it.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.sharding import Mesh
from numpy.typing import NDArray

from scafflix.core import durable, streams
from scafflix.core.arguments import real_number, whole_number
from scafflix.core.cache import cache_folder
from scafflix.core.checkpoint import NOWHERE, Checkpoints
from scafflix.core.checks import check_seed
from scafflix.core.digest import digest_of
from scafflix.core.durable import Arrays, DamagedError, Facts
from scafflix.core.errors import ScafflixError
from scafflix.core.progress import Progress
from scafflix.core.sharing import for_each, gather
from scafflix.core.store import Store, disk_errors
from scafflix.core.streams import Stream
from scafflix.data.federation import Federation
from scafflix.models.network import Network, Params
from scafflix.problems.evaluation import ALONE, evaluate
from scafflix.problems.problem import Problem
from scafflix.problems.rows import Rows, Spans, batch_rows, first_rows, objective

GRID = (1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1.0)
SAMPLE = 6  # clients on which the learning rate is chosen
VALIDATION_ROWS = 100  # at most, of a client, for stopping early
AT_ONCE = 4  # clients of a device, between checkpoints
NEARLY = 1.01  # times the least loss
LARGEST = {"batch": 10**6, "steps": 10**9, "check": 10**4, "patience": 10**9}
RECIPE = 3  # to be raised when the same recipe gives other points or files
POINTS, QUALITY = "x_star.f32", "quality.safetensors"


@dataclass(frozen=True)
class Recipe:
    """How x_i* is looked for."""

    stepsize: float | None = None  # None: chosen from GRID on validation data
    batch: int = 100
    steps: int = 200  # at most
    check: int = 10  # steps between looks at the validation loss
    patience: int = 3  # looks without a better one before stopping; 0: never, the last one counts
    seed: int = 0


# from a model that is good already: a few steps, all of them, since alpha_i is chosen on the data
# that would stop them early, and those would then speak for x_i*
TUNING = Recipe(stepsize=0.05, batch=32, steps=20, patience=0)


class LocalOptima(NamedTuple):
    """x_i* of every client, and how good it is for it."""

    x_star: Store
    stepsize: float
    # per client: steps, and loss and score on train and validation data
    quality: Mapping[str, NDArray[Any]]


class Dials(NamedTuple):
    """What may change without compiling anew."""

    rate: Any
    looks: Any  # at most
    patience: Any
    key: Array


class Found(NamedTuple):
    """The best point of each client, its validation loss, and the steps it took."""

    x: Params
    loss: Any
    steps: Any


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
    return LocalOptima(store, facts["stepsize"], quality)


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


def checked_recipe(recipe: Recipe) -> Recipe:
    """The recipe in plain numbers; refuse those that make no search."""
    stepsize = recipe.stepsize
    if stepsize is not None:
        stepsize = real_number("stepsize of the local optima", stepsize, above=True)
    counts = {
        name: whole_number(
            f"{name} of the local optima",
            getattr(recipe, name),
            least=0 if name == "patience" else 1,
            most=most,
        )
        for name, most in LARGEST.items()
    }
    return Recipe(stepsize, **counts, seed=check_seed(recipe.seed, "seed of the local optima"))


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

    def take(done: int, facts: Facts, arrays: Arrays) -> None:
        nonlocal store, stepsize, rates, steps
        store = Store(problem.template, problem.n, folder / POINTS)
        store.restore(arrays[1])
        stepsize, rates, steps = facts["stepsize"], facts["rates"], arrays[0].tolist()

    if not trail.last(take):
        store = Store(problem.template, problem.n, folder / POINTS, fresh=True)
    at_once = AT_ONCE * problem.mesh.size
    with trail:
        if stepsize is None:
            stepsize, rates = _choose_stepsize(problem, start, recipe, report)
        while len(steps) < problem.n:
            report(len(steps), problem.n, "local optima")
            clients = np.arange(len(steps), min(len(steps) + at_once, problem.n))
            found = _find(problem, start, recipe, stepsize, clients, at_once)
            store.write(clients, found.x)
            steps += found.steps.tolist()
            kept = (np.array(steps), store.snapshot()[: len(steps)])
            trail.save(len(steps), {"stepsize": stepsize, "rates": rates}, kept)
            trail.pause()
    columns = {"local_steps": np.array(steps), **_quality(problem, start, store)}
    facts = {"stepsize": stepsize, "rates": rates, "columns": list(columns)}
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
    losses: dict[str, float] = {}
    for number, rate in enumerate(GRID):
        report(number, len(GRID), f"local optima: trying the rate {rate:g}")
        found = _find(problem, start, recipe, rate, clients, SAMPLE + -SAMPLE % problem.mesh.size)
        losses[f"{rate:g}"] = float(np.mean(found.loss))
    least = min(losses.values())
    return min(rate for rate in GRID if losses[f"{rate:g}"] <= NEARLY * least), losses


def _quality(problem: Problem, start: Params, store: Store) -> dict[str, NDArray[np.float64]]:
    table = {}
    for part in ("train", "validation"):  # the test data are for the end
        scores = evaluate(problem, part, start, ALONE, store)
        table[f"{part}_loss_local"] = np.where(np.isfinite(scores.loss), scores.loss, np.nan)
        table[f"{part}_local"] = scores.score
    return table


def _find(
    problem: Problem,
    start: Params,
    recipe: Recipe,
    rate: float,
    clients: NDArray[np.int64],
    at_once: int,
) -> Found:
    """Some clients, with others filling up the devices; only theirs is returned, in NumPy."""
    if problem.torch is not None:
        from scafflix.personalization.searching import find

        return find(problem.torch, start, recipe, rate, clients)
    filled = np.resize(clients, at_once)
    validation = problem.parts["validation"]
    found = _search(
        problem.in_jax,
        problem.l2,
        problem.mesh,
        recipe.batch,
        recipe.check,
        min(VALIDATION_ROWS, int(validation.counts.max())),
        problem.train.rows,
        validation.rows,
        start,
        (problem.train.spans(filled), validation.spans(filled), filled.astype(np.int32)),
        Dials(
            np.float32(rate),
            np.int32(-(-recipe.steps // recipe.check)),
            np.int32(recipe.patience),
            streams.key(recipe.seed, Stream.OPTIMA),
        ),
    )
    return jax.tree.map(lambda leaf: leaf[: len(clients)], gather(found))


@partial(
    jax.jit,
    static_argnames=("network", "l2", "mesh", "batch", "check", "validation_rows"),
)
def _search(
    network: Network,
    l2: float,
    mesh: Mesh,
    batch: int,
    check: int,
    validation_rows: int,
    train: Rows,
    validation: Rows,
    start: Params,
    clients: tuple[Spans, Spans, Array],
    dials: Dials,
) -> Found:
    """SGD at each client until its validation loss has not fallen for a while, or to the end."""
    loss = partial(objective, network, l2)

    def at_client(
        common: tuple[Rows, Rows, Params, Dials], one: tuple[Spans, Spans, Array]
    ) -> Found:
        train, validation, start, dials = common
        mine, held_out, number = one
        key = jax.random.fold_in(dials.key, number)
        seen = first_rows(validation, *held_out, validation_rows)

        def step(k: Array, x: Params) -> Params:
            chosen = batch_rows(train, *mine, batch, jax.random.fold_in(key, k))
            g, _ = jax.grad(loss, has_aux=True)(x, *chosen)
            return jax.tree.map(lambda a, b: a - dials.rate * b, x, g)

        def look(carry: tuple[Params, Found, Array, Array]) -> tuple[Params, Found, Array, Array]:
            x, best, number, since = carry
            x = jax.lax.fori_loop(number * check, (number + 1) * check, step, x)
            _, value = loss(x, *seen)
            better = (value < best.loss) | (to_the_end & jnp.isfinite(value))  # never of NaN
            kept = jax.tree.map(
                lambda new, old: jnp.where(better, new, old),
                Found(x, value, (number + 1) * check),
                best,
            )
            return x, kept, number + 1, jnp.where(better, 0, since + 1)

        zero, to_the_end = jnp.int32(0), dials.patience == 0
        first = Found(start, loss(start, *seen)[1], zero)
        _, best, _, _ = jax.lax.while_loop(
            lambda carry: (carry[2] < dials.looks) & (to_the_end | (carry[3] < dials.patience)),
            look,
            (start, first, zero, zero),
        )
        return best

    return for_each(mesh, at_client, (train, validation, start, dials), clients)


def _key(problem: Problem, start: Params, recipe: Recipe) -> str:
    """A digest of everything that determines the points: data, loss, start, recipe."""
    return digest_of(problem.identity, *jax.tree.leaves(start), [RECIPE, asdict(recipe)])
