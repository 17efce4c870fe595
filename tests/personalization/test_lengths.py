"""For how many steps clients tune a model that is good already."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

import miniature
import scafflix as sx
import torch_networks
from scafflix.core.checkpoint import Checkpoints, Stop
from scafflix.core.errors import ScafflixError, StopError
from scafflix.personalization import lengths, optima
from scafflix.personalization.lengths import LEAST, MOST, choose_length, triers
from scafflix.personalization.optima import LocalOptima, local_optima
from scafflix.personalization.recipe import TUNING
from scafflix.personalization.rules import validation
from scafflix.personalization.rules.contract import GRID, Evidence
from scafflix.problems.evaluation import evaluate

pytestmark = pytest.mark.usefixtures("cache")
CLIENTS = 12
SMALL = miniature.problem((6,), 0.0, clients=24)
RECIPE = replace(TUNING, batch=4)
SLOW = replace(RECIPE, stepsize=0.02)


def evidence_of(loss: Any, noise: float = 0.0) -> Any:
    """Clients whose mixtures with alpha = 0.5 lose as much after so many steps, each a little more
    or less, and all others 1 more."""

    def tried(steps: int) -> Evidence:
        random = np.random.default_rng(steps)
        least = loss(steps) + noise * random.normal(size=CLIENTS) + np.linspace(0, 1, CLIENTS)
        return Evidence(least[:, None] + 4 * (GRID - 0.5) ** 2, np.full(CLIENTS, 10.0))

    return tried


@pytest.mark.parametrize("best", [20, 40, 160, 640])
def test_tuning_is_as_long_as_it_helps(best: int) -> None:
    found = choose_length(evidence_of(lambda steps: 2 + 10 / min(steps, best)))
    assert found.steps == best
    looked = [LEAST * 2**k for k in range(6) if LEAST * 2**k <= min(2 * best, MOST)]
    assert list(found.losses) == [str(steps) for steps in looked]


def test_the_losses_are_those_of_the_best_common_mixture() -> None:
    found = choose_length(evidence_of(lambda steps: 2 + 10 / min(steps, 40)))
    # 2.5 is 2 and the mean of what clients lose more or less
    assert found.losses["20"] == pytest.approx(3.0)
    assert found.losses["40"] == pytest.approx(2.75)


def test_what_may_be_chance_is_not_worth_more_steps() -> None:
    tried = evidence_of(lambda steps: 2 - 0.01 * np.log2(steps), noise=0.5)
    small = [evidence_of(lambda steps: 2.0, noise=0.3), tried]
    for one in small:
        first, second = (one(steps).curves[:, 10] for steps in (20, 40))
        error = (first - second).std(ddof=1) / np.sqrt(CLIENTS)
        further = (first - second).mean() > error
        assert (choose_length(one).steps > 20) == further


def test_what_one_client_gains_is_not_worth_the_steps_of_all() -> None:
    def tried(steps: int) -> Evidence:
        curves = np.full((CLIENTS, len(GRID)), 2.0)
        curves[3] -= steps / 100
        return Evidence(curves, np.full(CLIENTS, 10.0))

    assert choose_length(tried).steps == LEAST


def test_next_to_nothing_is_not_worth_more_steps_however_sure_it_is() -> None:
    assert choose_length(evidence_of(lambda steps: 2 - steps / 1e6)).steps == LEAST


def test_a_single_client_knows_nothing_of_chance() -> None:
    def tried(steps: int) -> Evidence:
        return Evidence(np.full((1, len(GRID)), 1 / steps), np.array([10.0]))

    assert choose_length(tried).steps == LEAST


def test_large_clients_do_not_drown_the_others() -> None:
    def tried(steps: int) -> Evidence:
        curves = np.full((CLIENTS, len(GRID)), 2 - np.log2(steps) / 10)
        curves[0] = 2 + np.log2(steps) / 20  # worse, with as many examples as a thousand others
        return Evidence(curves, np.array([1e5, *[100.0] * (CLIENTS - 1)]))

    assert choose_length(tried).steps > LEAST


def found(problem: sx.Problem, recipe: sx.Recipe, seed: int = 0) -> LocalOptima:
    return local_optima(problem, problem.start(seed), recipe)


def test_a_small_rate_asks_for_more_steps_and_a_large_one_does_not() -> None:
    slow = found(SMALL, SLOW).length
    quick = found(SMALL, replace(RECIPE, stepsize=0.5, seed=1)).length
    assert slow is not None
    assert quick is not None
    assert slow.steps > quick.steps
    assert slow.losses[str(slow.steps)] < 0.99 * slow.losses["20"]


def test_nothing_to_learn_takes_the_fewest_steps() -> None:
    length = found(SMALL, replace(RECIPE, stepsize=1e-9)).length
    assert length is not None
    assert length.steps == LEAST
    assert list(length.losses) == ["20", "40"]


@pytest.mark.parametrize("kind", ["jax", "torch"])
def test_the_points_are_those_of_as_many_steps(kind: str) -> None:
    problem = SMALL if kind == "jax" else module()
    chosen = found(problem, SLOW)
    assert chosen.length is not None
    assert chosen.length.steps > LEAST
    fixed = found(problem, replace(SLOW, steps=chosen.length.steps))
    assert fixed.length is None
    one, other = (made.x_star.read(np.arange(problem.n)) for made in (chosen, fixed))
    jax.tree.map(np.testing.assert_array_equal, one, other)
    assert (chosen.quality["local_steps"] == chosen.length.steps).all()


def module() -> sx.Problem:
    return sx.Problem(SMALL.federation, torch_networks.twin(SMALL.in_jax))


@pytest.mark.parametrize("kind", ["jax", "torch"])
def test_going_on_is_the_same_as_starting_over(kind: str) -> None:
    """The loss that was seen on the way is that of points found from the start."""
    problem = SMALL if kind == "jax" else module()
    length = found(problem, SLOW).length
    assert length is not None
    for steps in (20, length.steps):
        fixed = found(problem, replace(SLOW, steps=steps))
        seen = validation.evidence(problem, fixed.x_star, problem.start(0))
        weight = 1 / (1 / seen.weight + 1 / 100)
        pooled = weight @ seen.curves / weight.sum()
        assert length.losses[str(steps)] == pytest.approx(pooled.min(), rel=1e-6)


@pytest.mark.parametrize("kind", ["jax", "torch"])
def test_who_tried_the_chosen_number_last_does_not_begin_again(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    problem, find, calls = SMALL if kind == "jax" else module(), optima.find, 0
    fixed = found(problem, replace(SLOW, steps=40))
    monkeypatch.setattr(lengths, "MOST", 40)

    def counted(*arguments: Any) -> Any:
        nonlocal calls
        calls += 1
        return find(*arguments)

    monkeypatch.setattr(optima, "find", counted)
    chosen = found(problem, SLOW)
    assert chosen.length is not None
    assert chosen.length.steps == 40
    assert calls == 2 * -(-problem.n // (optima.AT_ONCE * problem.mesh.size))
    one, other = (made.x_star.read(np.arange(problem.n)) for made in (chosen, fixed))
    jax.tree.map(np.testing.assert_array_equal, one, other)
    assert (chosen.quality["local_steps"] == 40).all()


def test_some_clients_try_for_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lengths, "SAMPLE", 3)
    tried: list[list[int]] = []
    find = optima.find

    def spy(*arguments: Any) -> Any:
        tried.append(arguments[4].tolist())
        return find(*arguments)

    monkeypatch.setattr(optima, "find", spy)
    chosen = found(SMALL, SLOW)
    assert chosen.length is not None
    some = triers(SMALL.n, 0).tolist()
    assert len(some) == 3
    doublings = len(chosen.length.losses)
    assert tried[:doublings] == [some] * doublings
    assert [one for some in tried[doublings:] for one in some] == list(range(SMALL.n))
    loss = evaluate(SMALL, "validation", SMALL.start(0)).loss[some]
    assert min(chosen.length.losses.values()) < loss.max()


def test_who_tries_is_drawn_with_the_seed() -> None:
    assert len(triers(100, 0)) == 30
    assert triers(100, 0).tolist() == triers(100, 0).tolist()
    assert triers(100, 0).tolist() != triers(100, 1).tolist()
    assert triers(7, 0).tolist() == list(range(7))


def test_a_stopped_search_does_not_choose_the_length_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    class StoppedError(Exception):
        pass

    def stop(done: int, _: int, what: str) -> None:
        if what == "local optima" and done:
            raise StoppedError

    monkeypatch.setattr(optima, "AT_ONCE", 1)
    problem = miniature.problem((6,), 0.0, clients=11)
    with pytest.raises(StoppedError):
        local_optima(problem, problem.start(0), SLOW, stop)
    with monkeypatch.context() as patch:
        patch.setattr(optima, "choose_length", None)
        resumed = found(problem, SLOW)
    monkeypatch.setenv("SCAFFLIX_CACHE", str(tmp_path / "other"))
    whole = found(problem, SLOW)
    assert resumed.length == whole.length
    one, other = (made.x_star.read(np.arange(problem.n)) for made in (resumed, whole))
    jax.tree.map(np.testing.assert_array_equal, one, other)


def test_a_signal_stops_the_choice_itself(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    stop = Stop()

    def asked(done: int, _: int, what: str) -> None:
        if "trying 40 steps" in what:
            stop.signal = 15

    place = Checkpoints(tmp_path / "work", stop=stop)
    with pytest.raises(StopError):
        local_optima(SMALL, SMALL.start(0), SLOW, asked, place)
    stopped = found(SMALL, SLOW)
    monkeypatch.setenv("SCAFFLIX_CACHE", str(tmp_path / "other"))
    assert stopped.length == found(SMALL, SLOW).length


def test_what_was_chosen_is_found_again_in_the_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    first = found(SMALL, SLOW)
    monkeypatch.setattr(optima, "find", None)
    assert found(SMALL, SLOW).length == first.length


def test_stopping_early_needs_a_number_of_steps() -> None:
    with pytest.raises(ScafflixError, match="goes with patience 0"):
        found(SMALL, replace(SLOW, patience=3))
