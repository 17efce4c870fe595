from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

import miniature
import scafflix as sx
from miniature import CLASSES, FEATURES, N
from scafflix.core.compilation import COMPILATIONS
from scafflix.core.errors import ScafflixError
from scafflix.models.dense import dense
from scafflix.personalization import optima
from scafflix.personalization.optima import NEARLY, LocalOptima, local_optima
from scafflix.personalization.recipe import GRID, Recipe
from scafflix.problems.evaluation import ALONE, evaluate
from scafflix.problems.rows import objective

pytestmark = pytest.mark.usefixtures("cache")
SMALL = miniature.problem((6,), 0.0)
RECIPE = Recipe(stepsize=0.2, batch=4, steps=40)
MANY = 11  # clients: more than are searched together


def found(problem: sx.Problem = SMALL, recipe: Recipe = RECIPE, seed: int = 0) -> LocalOptima:
    return local_optima(problem, problem.start(seed), recipe)


def values(local: LocalOptima) -> Any:
    return miniature.flat(local.x_star.read(np.arange(local.x_star.clients)))


def refuse(*_: object) -> None:
    raise AssertionError("computed although it is cached")


# what is found


def test_local_optima_are_never_worse_on_validation_than_the_start() -> None:
    local = found(recipe=Recipe(stepsize=0.2, batch=4, steps=200))
    start = evaluate(SMALL, "validation", SMALL.start(0)).loss
    assert (local.quality["validation_loss_local"] <= start * (1 + 1e-6)).all()
    assert (local.quality["validation_loss_local"] < 0.9 * start).sum() >= 4


def test_a_rate_that_explodes_leaves_the_start() -> None:
    local = found(recipe=replace(RECIPE, stepsize=1e9))
    start = miniature.flat(SMALL.start(0))
    own = local.x_star.read(np.arange(N))
    for i in range(N):
        one = miniature.flat(jax.tree.map(lambda leaf, i=i: leaf[i], own))
        np.testing.assert_array_equal(one, start)
    assert (local.quality["local_steps"] == 0).all()


def test_steps_are_counted_up_to_the_point_that_is_kept() -> None:
    steps = found().quality["local_steps"]
    assert (steps % RECIPE.check == 0).all()
    assert steps.max() <= RECIPE.steps
    assert steps.max() > 0


def test_a_search_that_may_go_on_longer_keeps_a_point_at_least_as_good() -> None:
    brief = found(recipe=replace(RECIPE, steps=10)).quality["validation_loss_local"]
    long = found(recipe=replace(RECIPE, steps=100)).quality["validation_loss_local"]
    assert (long <= brief * (1 + 1e-6)).all()


def test_patience_is_the_number_of_looks_without_a_better_one() -> None:
    # SGD by hand at one client, with the batches of its stream
    client, recipe = 3, Recipe(stepsize=0.5, batch=4, steps=80, check=5, patience=2)
    problem = miniature.problem((), 0.0)
    local = found(problem, recipe)
    part, held_out = problem.train, problem.parts["validation"]
    key = jax.random.fold_in(
        optima.streams.key(recipe.seed, optima.Stream.OPTIMA), np.int32(client)
    )
    rows = slice(held_out.first[client], held_out.first[client] + held_out.counts[client])
    seen = (held_out.rows.inputs[rows], held_out.rows.labels[rows])

    def loss(x: Any, *batch: Any) -> Any:
        return objective(problem.network, 0.0, x, *batch)[0]

    gradient = jax.jit(jax.grad(loss))
    x = best = problem.start(0)
    least, kept, since, step = float(loss(x, *seen)), 0, 0, 0
    while step < recipe.steps and since < recipe.patience:
        for _ in range(recipe.check):
            drawn = jax.random.randint(
                jax.random.fold_in(key, step), (4,), 0, part.counts[client], dtype=np.int32
            )
            chosen = part.first[client] + np.asarray(drawn)
            g = gradient(x, part.rows.inputs[chosen], part.rows.labels[chosen])
            x = jax.tree.map(lambda a, b: a - np.float32(0.5) * b, x, g)
            step += 1
        value = float(loss(x, *seen))
        since += 1
        if value < least:
            best, least, kept, since = x, value, step, 0
    assert local.quality["local_steps"][client] == kept
    own = jax.tree.map(lambda leaf: leaf[0], local.x_star.read(np.array([client])))
    np.testing.assert_allclose(miniature.flat(own), miniature.flat(best), atol=1e-5)


def test_without_patience_all_steps_are_made_and_the_last_point_counts() -> None:
    recipe = replace(RECIPE, steps=60, patience=0)
    local = found(recipe=recipe)
    assert (local.quality["local_steps"] == recipe.steps).all()
    longer = found(recipe=replace(recipe, steps=2 * recipe.steps))
    worse = longer.quality["validation_loss_local"] > local.quality["validation_loss_local"]
    assert worse.any()  # nothing but the number of steps decides


def test_the_rate_is_the_smallest_whose_validation_loss_is_nearly_the_least() -> None:
    problem = miniature.problem((), 0.0, clients=5)  # as few as are tried: all are
    recipe = Recipe(batch=4, steps=30)
    each = [
        found(problem, replace(recipe, stepsize=rate)).quality["validation_loss_local"].mean()
        for rate in GRID
    ]
    nearly = np.flatnonzero(np.array(each) <= NEARLY * min(each))
    assert found(problem, recipe).stepsize == GRID[nearly[0]]


def test_the_quality_is_that_of_the_points() -> None:
    local = found()
    for part in ("train", "validation"):
        scores = evaluate(SMALL, part, SMALL.start(0), ALONE, local.x_star)
        np.testing.assert_array_equal(local.quality[f"{part}_local"], scores.score)
        np.testing.assert_array_equal(local.quality[f"{part}_loss_local"], scores.loss)


def test_a_client_without_validation_examples_is_refused_by_name() -> None:
    fed = miniature.federation()
    assert fed.validation is not None
    counts = fed.validation.counts.copy()
    kept = np.flatnonzero(fed.validation.owners != 2)
    counts[2] = 0
    validation = replace(
        fed.validation,
        features=fed.validation.features[kept],
        labels=fed.validation.labels[kept],
        offsets=np.concatenate([[0], np.cumsum(counts)]),
    )
    problem = sx.Problem(replace(fed, validation=validation), dense(FEATURES, CLASSES, (6,)))
    with pytest.raises(ScafflixError, match=f"Client {fed.clients[2]} has no validation examples"):
        found(problem)


def test_no_more_is_compiled_for_another_rate_or_patience() -> None:
    found()
    before = COMPILATIONS.count
    found(recipe=replace(RECIPE, stepsize=0.1, steps=70, patience=1))
    assert COMPILATIONS.count == before


# the cache


def test_a_second_call_computes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    first = values(found())
    monkeypatch.setattr(optima, "find", refuse)
    monkeypatch.setattr(optima, "evaluate", refuse)
    np.testing.assert_array_equal(values(found()), first)


def variants() -> dict[str, LocalOptima]:
    fed = miniature.federation()
    other = replace(fed, train=replace(fed.train, features=1.5 * fed.train.features))
    return {
        "as it was": found(),
        "data": found(sx.Problem(other, dense(FEATURES, CLASSES, (6,)))),
        "model": found(miniature.problem((7,), 0.0)),
        "l2": found(miniature.problem((6,), 0.1)),
        "start": found(seed=1),
        "stepsize": found(recipe=replace(RECIPE, stepsize=0.1)),
        "batch": found(recipe=replace(RECIPE, batch=5)),
        "steps": found(recipe=replace(RECIPE, steps=20)),
        "check": found(recipe=replace(RECIPE, check=5)),
        "patience": found(recipe=replace(RECIPE, patience=1)),
        "seed": found(recipe=replace(RECIPE, seed=1)),
    }


def test_the_cache_keeps_apart_what_differs_in_data_model_start_or_recipe(cache: Path) -> None:
    files = {name: local.x_star.file for name, local in variants().items()}
    assert len(set(files.values())) == len(files)
    assert len(list((cache / "optima").iterdir())) == len(files)


class StoppedError(Exception):
    pass


def stop_at(client: int) -> Any:
    def report(done: int, _: int, what: str) -> None:
        if what == "local optima" and done >= client:
            raise StoppedError

    return report


def test_a_stopped_search_goes_on_where_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = miniature.problem((6,), 0.0, clients=MANY)
    searched: list[int] = []
    search = optima.find

    def spy(*arguments: Any) -> Any:
        searched.extend(arguments[4].tolist())
        return search(*arguments)

    monkeypatch.setattr(optima, "find", spy)
    with pytest.raises(StoppedError):
        local_optima(problem, problem.start(0), RECIPE, stop_at(5))
    half = list(searched)
    local_optima(problem, problem.start(0), RECIPE)
    assert 0 < len(half) < MANY
    assert searched == list(range(MANY))


def test_a_stopped_search_ends_with_the_bits_of_a_whole_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    problem = miniature.problem((6,), 0.0, clients=MANY)
    recipe = Recipe(batch=4, steps=20)  # the rate is chosen too
    with pytest.raises(StoppedError):
        local_optima(problem, problem.start(0), recipe, stop_at(5))
    resumed = local_optima(problem, problem.start(0), recipe)
    monkeypatch.setenv("SCAFFLIX_CACHE", str(tmp_path / "other"))
    whole = local_optima(problem, problem.start(0), recipe)
    assert resumed.stepsize == whole.stepsize
    np.testing.assert_array_equal(values(resumed), values(whole))
    for name, column in whole.quality.items():
        np.testing.assert_array_equal(resumed.quality[name], column)


def test_a_stopped_search_does_not_choose_the_rate_again(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = miniature.problem((6,), 0.0, clients=MANY)
    recipe = Recipe(batch=4, steps=20)
    with pytest.raises(StoppedError):
        local_optima(problem, problem.start(0), recipe, stop_at(5))
    monkeypatch.setattr(optima, "_choose_stepsize", refuse)
    local_optima(problem, problem.start(0), recipe)


def test_nothing_is_left_aside_when_all_is_found(cache: Path) -> None:
    found()
    (folder,) = (cache / "optima").iterdir()
    assert sorted(path.name for path in folder.iterdir()) == [
        "quality.safetensors",
        "x_star.f32",
        "x_star.json",
    ]


def test_test_data_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    # tuning, and runs with part = validation, search for local optima too
    seen = miniature.spied_parts(monkeypatch)
    found()
    assert "test" not in seen


# what is refused


def test_no_validation_data_are_one_sentence() -> None:
    fed = replace(miniature.federation(), validation=None)
    problem = sx.Problem(fed, dense(FEATURES, CLASSES, (6,)))
    with pytest.raises(ScafflixError, match=r"validation data, and there are none; .*0\.1\.$"):
        found(problem)


@pytest.mark.parametrize("name", ["batch", "steps", "check"])
def test_a_recipe_without_any_is_refused(name: str) -> None:
    with pytest.raises(ScafflixError, match=f"{name} of the local optima is 0"):
        found(recipe=replace(RECIPE, **{name: 0}))


@pytest.mark.parametrize("stepsize", [0.0, -1.0, np.inf, np.nan])
def test_a_stepsize_that_is_no_number_above_zero_is_refused(stepsize: float) -> None:
    with pytest.raises(ScafflixError, match="stepsize of the local optima"):
        found(recipe=replace(RECIPE, stepsize=stepsize))


def test_a_damaged_note_in_the_cache_is_one_sentence(cache: Path) -> None:
    found()
    (note,) = (cache / "optima").glob("*/quality.safetensors")
    content = note.read_bytes()
    note.write_bytes(content[:-4])
    with pytest.raises(ScafflixError, match=r"quality\.safetensors is damaged.*Remove the folder"):
        found()


def test_a_flipped_bit_in_a_cached_point_is_one_sentence(cache: Path) -> None:
    found()
    (points,) = (cache / "optima").glob("*/x_star.f32")
    content = bytearray(points.read_bytes())
    content[len(content) // 2] ^= 1
    points.write_bytes(content)
    with pytest.raises(ScafflixError, match=r"x_star\.f32 is damaged: its row"):
        found()
