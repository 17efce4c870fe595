"""How long a figure takes, before it is made."""

from __future__ import annotations

import pytest

from scafflix.runs import durations
from scafflix.runs.config import RunConfig, Scale, build
from scafflix.runs.durations import foreseen, steps_a_second
from scafflix.runs.runner import Runner


def test_runs_that_lines_share_are_counted_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(durations, "steps_a_second", lambda *_: 100.0)
    monkeypatch.setattr(durations.Runner, "of", lambda *_: None)
    lines = {"panels": "3", "lines": "0,1,2"}  # the shared model, tuned, and mixed: one run
    found = foreseen("rivals", Scale.machine, {**lines, "seeds": "2"})
    assert found is not None
    # 4 stepsizes for 30 rounds, 2 for 100, then two seeds; 10 clients and 5 steps a round
    assert found.runs == 4 + 2 + 2
    assert found.gradients == 50 * (4 * 30 + 2 * 100 + 2 * 1000)
    assert found.seconds == found.gradients / 100


@pytest.mark.parametrize(
    ("line", "gradients"),
    [
        (6, 2 * 5),  # Ditto: the shared model and its own
        (7, 2 * 5),  # APFL: the shared model and the mixture
        (8, 10 + 5),  # FedRep: ten steps of the head come first
        (9, 5),  # FedPer
        (13, 2 * 5),  # Per-FedAvg: a gradient a step ahead
    ],
)
def test_gradients_are_those_of_the_method(
    line: int, gradients: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(durations, "steps_a_second", lambda *_: 100.0)
    monkeypatch.setattr(durations.Runner, "of", lambda *_: None)
    asked = {"panels": "3", "lines": str(line), "grid": "0.1", "tuning_rounds": "1,2"}
    found = foreseen("rivals", Scale.machine, {**asked, "seeds": "1"})
    assert found is not None
    compared = 0 if line in (8, 9) else 3 * 1 + 2 * 2  # three settings, then the two best
    assert found.gradients == pytest.approx(10 * gradients * (compared + 1000))


def test_linear_models_are_not_timed() -> None:
    assert foreseen("rivals", Scale.machine, {"panels": "0"}) is None


def test_a_few_rounds_tell_the_speed() -> None:
    asked = {"data": "iris", "clients": 3, "split": "shuffled", "model": "dense", "batch": 5}
    config = build(RunConfig, {**asked, "min_examples": 5, "cohort": 2, "rounds": 50})
    assert steps_a_second(Runner.of(config), config) > 0
