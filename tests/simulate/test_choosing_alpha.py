"""alpha that chooses itself: trained at 1, chosen at the end, and said in the record."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import scafflix as sx
from scafflix.core.checkpoint import Checkpoints, Often
from scafflix.core.progress import Standing
from scafflix.personalization.rules.choosing import choose

ROUNDS = 6


@cache
def problem() -> sx.Problem:
    fed = sx.data.load("synthetic:rows=24,features=5,optima=1", clients=5, test=0.3, validation=0.2)
    return sx.Problem(fed, sx.models.logistic(), l2=0.1)


@cache
def run(alpha: Any) -> sx.Record:
    person = sx.personalize(problem(), alpha)
    return sx.run(problem(), person, sx.scafflix(sx.plan(problem(), person)), rounds=ROUNDS)


def test_a_run_with_a_rule_is_the_run_at_alpha_1_up_to_what_clients_take_home() -> None:
    chosen, plain = run("auto"), run(1.0)
    for name, column in plain.metrics.items():
        np.testing.assert_array_equal(chosen.metrics[name], column)
    np.testing.assert_array_equal(chosen.models["global"], plain.models["global"])
    assert chosen.summary["certificate"] == plain.summary["certificate"]
    assert chosen.summary["certificate"]["holds"]


@pytest.mark.parametrize("rule", ["loo", "validation", "james-stein", "common"])
def test_every_client_takes_home_the_mixture_with_its_own_alpha(rule: str) -> None:
    record = run(rule)
    alpha = record.clients["alpha"][:, None]
    mixed = alpha * record.models["global"] + (1 - alpha) * record.models["local"]
    np.testing.assert_allclose(record.models["personal"], mixed)
    made = choose(problem(), rule, record.models["local"], record.models["global"])
    np.testing.assert_array_equal(record.clients["alpha"], made.alpha)
    assert record.summary["alpha"]["rule"] == rule


def test_the_record_says_rule_curves_and_gains_and_a_folder_keeps_them(tmp_path: Path) -> None:
    record = run("auto")
    found = sx.Record.load(record.save(tmp_path / "run"))
    assert found.config["alpha"] == "auto"
    assert found.summary["alpha"]["rule"] == "loo"
    gains = found.clients["expected_gain"]
    assert found.summary["alpha"]["expected_gain"] == pytest.approx(gains.mean())
    assert found.curves["own"].shape == found.curves["expected"].shape == (5, 21)
    at = np.rint(20 * found.clients["alpha"]).astype(int)
    np.testing.assert_allclose(-found.curves["expected"][np.arange(5), at], gains)


@pytest.mark.parametrize("alpha", ["auto", 0.5])
def test_every_summary_says_who_is_worse_off_than_alone(alpha: object) -> None:
    record = run(alpha)
    found, loss = record.summary["taking_part"], record.clients
    for kind in ("personal", "global"):
        gain = loss["test_loss_local"] - loss[f"test_loss_{kind}"]
        assert found[kind]["gain"] == pytest.approx(gain.mean())
        assert found[kind]["hurt"] == (gain < 0).sum()
        assert found[kind]["share_hurt"] == pytest.approx((gain < 0).mean())
    part = problem().federation.parts["test"]
    mine = slice(*part.offsets[:2])
    z = part.features[mine] @ record.models["personal"][0]
    margins = problem().labels["test"][mine] * z
    expected = np.log1p(np.exp(-margins)).mean()
    assert loss["test_loss_personal"][0] == pytest.approx(expected)


def test_trained_below_1_and_chosen_at_the_end() -> None:
    chosen, plain = run("loo:0.3"), run(0.3)
    np.testing.assert_array_equal(chosen.models["global"], plain.models["global"])
    assert chosen.summary["alpha"]["trained_at"] == 0.3
    assert (chosen.clients["alpha"] != 0.3).any()


def test_a_change_of_alpha_is_a_second_run_that_finds_its_own_optimum() -> None:
    """The first run's control variates would keep it from there: their sum is weighted by others'
    alphas. Putting them in order costs a message, and the bound counts from then."""
    x, person = run(0.3).models["global"], sx.personalize(problem(), [1, 1, 0.5, 0.2, 0.7])
    method = sx.scafflix(sx.plan(problem(), person))
    second = sx.run(problem(), person, method, rounds=150, start=x, h0="warm")
    assert second.summary["final_gap"] < 1e-12
    assert second.summary["certificate"]["holds"]
    metrics = second.metrics
    assert metrics["bits_up"][0] == metrics["bits_down"][0] == 5 * 64 * 5
    assert metrics["lyapunov_bound"][0] == metrics["lyapunov"][0]


def test_a_stopped_run_goes_on_to_the_same_choice_and_another_rule_is_refused(
    tmp_path: Path,
) -> None:
    person = sx.personalize(problem(), "auto")
    method = sx.scafflix(sx.plan(problem(), person))

    class StoppedError(Exception):
        pass

    def stop(done: int, total: int, state: Standing | str) -> None:
        if done >= 3:
            raise StoppedError

    kept = Checkpoints(tmp_path, Often(rounds=1))
    with pytest.raises(StoppedError):
        sx.run(problem(), person, method, rounds=ROUNDS, checkpoints=kept, progress=stop)
    other = person.at("james-stein")
    with pytest.raises(sx.ScafflixError, match="rules for alpha"):
        sx.run(problem(), other, method, rounds=ROUNDS, checkpoints=kept)
    again, whole = sx.run(problem(), person, method, rounds=ROUNDS, checkpoints=kept), run("auto")
    for name in ("alpha", "expected_gain", "test_loss_personal"):
        np.testing.assert_array_equal(again.clients[name], whole.clients[name])
    np.testing.assert_array_equal(again.curves["own"], whole.curves["own"])


def test_a_network_chooses_by_its_validation_part() -> None:
    fed = problem().federation
    network = sx.Problem(fed, sx.models.dense(features=5, classes=2, hidden=(4,)))
    person = sx.personalize(network, "auto", recipe=sx.Recipe(stepsize=0.1, steps=20, batch=4))
    method = sx.fedavg(sx.plan(network, person, gradient=sx.gradients.Minibatch(4)))
    record = sx.run(network, person, method, rounds=2)
    assert record.summary["alpha"]["rule"] == "validation"
    alpha = record.clients["alpha"]
    for name, leaf in record.models.items():
        if name.startswith("personal/"):
            share = alpha.reshape(-1, *(1,) * (leaf.ndim - 1))
            other = name.removeprefix("personal/")
            mixed = share * record.models[f"global/{other}"]
            mixed = mixed + (1 - share) * record.models[f"local/{other}"]
            np.testing.assert_allclose(leaf, mixed, atol=1e-6)
    gain = record.clients["test_loss_local"] - record.clients["test_loss_personal"]
    assert record.summary["taking_part"]["personal"]["gain"] == pytest.approx(gain.mean())
