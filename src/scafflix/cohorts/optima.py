"""The local optimum stage: each client's own x_i*, by stochastic gradients from one start.

A network's f_i has many optima, and the start decides which is found. Training stops early, when
the loss on the client's validation examples no longer falls, and the best point is kept. What was
found is cached on disk under a key made of everything that determines it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
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

from scafflix.cohorts.devices import for_each
from scafflix.cohorts.digest import digest_of
from scafflix.cohorts.evaluation import evaluate
from scafflix.cohorts.problem import (
    NetworkProblem,
    Rows,
    Spans,
    batch_rows,
    first_rows,
    objective,
)
from scafflix.cohorts.store import Store, disk_errors, locked
from scafflix.data.catalogue import cache_folder
from scafflix.engine import streams
from scafflix.engine.streams import Stream
from scafflix.errors import ScafflixError
from scafflix.models.network import Network, Params
from scafflix.record import Columns

GRID = (1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1.0)
SAMPLE = 6  # clients on which the learning rate is chosen
VALIDATION_ROWS = 100  # at most, of a client, for stopping early
RECIPE = 1  # to be raised when the same recipe gives other points

Progress = Callable[[int, int, str], None]  # clients done, of how many, what is being done


@dataclass(frozen=True)
class Recipe:
    """How x_i* is looked for."""

    stepsize: float | None = None  # None: chosen from GRID on validation data
    batch: int = 100
    steps: int = 200  # at most
    check: int = 10  # steps between looks at the validation loss
    patience: int = 3  # looks without a better one before stopping
    seed: int = 0


class LocalOptima(NamedTuple):
    """x_i* of every client, and how good it is for it."""

    x_star: Store
    stepsize: float
    quality: Columns  # per client: steps, and loss and score on train and validation data


class Dials(NamedTuple):
    """What may change without compiling anew."""

    rate: Any
    looks: Any  # at most
    patience: Any
    key: Array


class Found(NamedTuple):
    """The best point of each client, its validation loss, and the steps it took."""

    x: Params
    loss: Array
    steps: Array


def local_optima(
    problem: NetworkProblem, start: Params, recipe: Recipe, progress: Progress | None = None
) -> LocalOptima:
    """Every client's x_i* from a common start; from the cache if it was found before."""
    if "validation" not in problem.parts:
        raise ScafflixError(
            "The local optimum stage stops early by validation data, and there are none; "
            "give validation, such as 0.1."
        )
    without = np.flatnonzero(problem.parts["validation"].counts == 0)
    if len(without):
        raise ScafflixError(
            f"Client {problem.federation.clients[without[0]]} has no validation examples to stop "
            "its local optimum by; give min_examples, such as 1, to leave it out."
        )
    _check(recipe)
    folder = cache_folder() / "optima" / _key(problem, start, recipe)
    with disk_errors(folder), locked(folder):
        if not (folder / "quality.json").exists():
            aside = folder.with_name(folder.name + ".part")
            _find_all(problem, start, recipe, aside, progress)
            os.replace(aside, folder)
        found = _read(folder / "quality.json")
    quality = {
        name: np.array([np.nan if v is None else v for v in values])
        for name, values in found["clients"].items()
    }
    store = Store(problem.template, problem.n, folder / "x_star.f32")
    return LocalOptima(store, found["stepsize"], quality)


def _read(file: Path) -> Any:
    try:
        return json.loads(file.read_text())
    except ValueError:
        raise ScafflixError(f"{file} is damaged; remove the folder {file.parent}.") from None


def _check(recipe: Recipe) -> None:
    for name in ("batch", "steps", "check", "patience"):
        if getattr(recipe, name) < 1:
            raise ScafflixError(
                f"{name} of the local optima is {getattr(recipe, name)}; at least 1."
            )
    if recipe.stepsize is not None and not 0 < recipe.stepsize < np.inf:
        raise ScafflixError(
            f"The stepsize of the local optima is {recipe.stepsize}; it must be above 0."
        )


def _find_all(
    problem: NetworkProblem,
    start: Params,
    recipe: Recipe,
    folder: Path,
    progress: Progress | None,
) -> None:
    """Client after client into the folder; goes on where a stopped process left off."""
    store = Store(problem.template, problem.n, folder / "x_star.f32")
    note = folder / "progress.json"
    done: dict[str, Any] = {"stepsize": recipe.stepsize, "steps": [], "rates": {}}
    if note.exists():
        done = _read(note)
    report = progress or (lambda *_: None)
    if done["stepsize"] is None:
        done["stepsize"], done["rates"] = _choose_stepsize(problem, start, recipe, report)
    at_once = 4 * problem.mesh.size
    while len(done["steps"]) < problem.n:
        first = len(done["steps"])
        report(first, problem.n, "local optima")
        clients = np.arange(first, min(first + at_once, problem.n))
        found = _find(problem, start, recipe, done["stepsize"], clients, at_once)
        store.write(clients, found.x)
        store.sync()
        done["steps"] += found.steps.tolist()
        _replace(note, done)
    _replace(folder / "quality.json", _quality(problem, start, store, done))
    note.unlink()
    store.close()


def _choose_stepsize(
    problem: NetworkProblem, start: Params, recipe: Recipe, report: Progress
) -> tuple[float, dict[str, float]]:
    """The rate of the grid with the least validation loss, averaged over a few clients."""
    drawn = streams.generator(recipe.seed, Stream.OPTIMA, 0)
    clients = np.sort(drawn.choice(problem.n, min(SAMPLE, problem.n), replace=False))
    losses: dict[str, float] = {}
    for number, rate in enumerate(GRID):
        report(number, len(GRID), f"local optima: trying the rate {rate:g}")
        found = _find(problem, start, recipe, rate, clients, SAMPLE + -SAMPLE % problem.mesh.size)
        losses[f"{rate:g}"] = float(np.mean(found.loss))
    return float(min(losses, key=lambda rate: losses[rate])), losses


def _quality(
    problem: NetworkProblem, start: Params, store: Store, done: dict[str, Any]
) -> dict[str, Any]:
    table: dict[str, list[Any]] = {"local_steps": done["steps"]}
    alone = np.zeros(problem.n)
    for part in ("train", "validation"):  # the test data are for the end
        scores = evaluate(problem, part, start, alone, store)
        table[f"{part}_loss_local"] = _plain(scores.loss)
        table[f"{part}_local"] = _plain(scores.score)
    return {"stepsize": done["stepsize"], "rates": done["rates"], "clients": table}


def _plain(values: NDArray[np.float64]) -> list[float | None]:
    return [float(value) if np.isfinite(value) else None for value in values]


def _replace(path: Path, content: Any) -> None:
    aside = path.with_suffix(".new")
    with aside.open("w") as file:
        json.dump(content, file)
        file.flush()
        os.fsync(file.fileno())
    os.replace(aside, path)


def _find(
    problem: NetworkProblem,
    start: Params,
    recipe: Recipe,
    rate: float,
    clients: NDArray[np.int64],
    at_once: int,
) -> Found:
    """Some clients, with others filling up the devices; only theirs is returned, in NumPy."""
    filled = np.resize(clients, at_once)
    validation = problem.parts["validation"]
    found = _search(
        problem.network,
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
    return jax.tree.map(lambda leaf: np.asarray(leaf)[: len(clients)], found)


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
    """SGD at each client until its validation loss has not fallen for a while."""
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
            better = value < best.loss  # never true of NaN
            kept = jax.tree.map(
                lambda new, old: jnp.where(better, new, old),
                Found(x, value, (number + 1) * check),
                best,
            )
            return x, kept, number + 1, jnp.where(better, 0, since + 1)

        zero = jnp.int32(0)
        first = Found(start, loss(start, *seen)[1], zero)
        _, best, _, _ = jax.lax.while_loop(
            lambda carry: (carry[2] < dials.looks) & (carry[3] < dials.patience),
            look,
            (start, first, zero, zero),
        )
        return best

    return for_each(mesh, at_client, (train, validation, start, dials), clients)


def _key(problem: NetworkProblem, start: Params, recipe: Recipe) -> str:
    """A digest of everything that determines the points: data, loss, start, recipe."""
    return digest_of(problem.digest, *jax.tree.leaves(start), [RECIPE, asdict(recipe)])
