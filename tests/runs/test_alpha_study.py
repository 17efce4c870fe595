"""The study of rules for alpha, on data small enough to check it by hand."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import scafflix as sx
from scafflix.report import alpha_study as drawing
from scafflix.runs import alpha_convex, alpha_study

SETTINGS = {
    "divisions": 2,
    "rounds": 4,
    "alphas": [0.3, 0.5, 1.0],
    "looks": [1, 3, 4],
    "validation": 0.2,
    "newcomers": [5, 9, 1000],
    "absent": 0.2,
    "panels": [
        {
            "title": "made up",
            "data": "synthetic:rows=30,features=3,optima=1",
            "clients": 5,
            "test": 0.4,
            "model": "logistic",
            "l2": 0.1,
            "newcomers": True,
        },
        {
            "title": "a network",
            "data": "synthetic:rows=30,features=3,optima=1",
            "clients": 5,
            "test": 0.3,
            "validation": 0.3,
            "min_examples": 1,
            "model": "dense",
            "alone": {
                "optima": "common",
                "optima_stepsize": 0.1,
                "optima_steps": 10,
                "optima_batch": 5,
            },
            "tuned": {"optima_batch": 5},
            "batch": 5,
            "divisions": 1,
            "rounds": 2,
            "looks": [1],
        },
    ],
}


@pytest.fixture
def settings(monkeypatch: pytest.MonkeyPatch, cache: Path) -> None:
    monkeypatch.setattr(alpha_study, "figure_settings", lambda name: dict(SETTINGS))


@pytest.mark.usefixtures("settings")
def test_lines_that_are_the_same_models_fare_the_same_and_are_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (found,) = alpha_study.study({"panels": "0"})
    ends, rounds = found.ends, found.rounds
    assert ends["alpha 1"] == ends["global"] == rounds["alpha 1, as trained"][4]
    assert ends["loo"] == rounds["alpha 1, chosen"][4]
    assert rounds["alpha 0.3, then 1, chosen"][1] == rounds["alpha 0.3, chosen"][1]
    assert all(fate.hurt == 0 for fate in ends["local"])
    assert list(found.newcomers) == [5, 9]
    lines = ("alone", "global", "fine-tuned", "adapted", "adapted at 0.5", "adapted at 0")
    counts = {line: len(fates) for line, fates in found.newcomers[5].items()}
    assert counts == dict.fromkeys(lines, 2)
    titles = [table.title for table in drawing.tables([found])]
    assert titles[-1] == "made up: test loss of newcomers with so many examples"
    assert drawing.hindsight(found) in ("local", "alpha 0.3", "alpha 0.5", "alpha 1")
    assert len(drawing.figure([found]).axes) == 1

    def nobody(*_: object) -> dict[str, object]:
        raise AssertionError

    monkeypatch.setattr(alpha_convex, "fates_of", nobody)
    assert alpha_study.study({"panels": "0"}) == [found]


@pytest.mark.usefixtures("settings")
def test_a_network_is_mixed_after_the_rounds_or_trained_for_the_mixture() -> None:
    (found,) = alpha_study.study({"panels": "1"})
    ends, rounds = found.ends, found.rounds
    assert ends["validation"] == rounds["alpha 1, chosen"][2]
    assert ends["global"] == ends["alpha 1"] == rounds["alpha 1, as trained"][2]
    assert ends["alpha 0.5"] == rounds["alpha 0.5, as trained"][2]
    assert list(rounds["FedAvg"]) == list(rounds["alpha 1, tuned"]) == [1, 2]
    losses, hurt, *_ = drawing.tables([found])
    assert losses.rows[0][losses.header.index("loo")] == drawing.ABSENT
    assert hurt.rows[0][hurt.header.index("validation")] != drawing.ABSENT


@pytest.mark.usefixtures("settings")
@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"l2": "1"}, "no key 'l2'"),
        ({"rounds": "x"}, "whole numbers"),
        ({"looks": "0"}, "least 1"),
        ({"panels": "2"}, "no panel 2; .* 0 to 1"),
    ],
)
def test_changes_that_make_no_sense_are_one_sentence(changes: dict[str, str], says: str) -> None:
    with pytest.raises(sx.ScafflixError, match=says):
        alpha_study.study(changes)


def test_an_uneven_division_has_large_clients_of_some_classes_and_tiny_ones_of_all() -> None:
    sizes = {"large": 3, "classes": 1, "rows": 20, "tiny": 10, "most": 4, "test": 5}
    panel = {"data": "iris", "uneven": sizes}
    fed = alpha_convex._federation(panel, 0)
    assert fed.train.counts.tolist() == [20, 20, 20, 4, 1, 2, 3, 4, 1, 2, 3, 4, 1]
    assert fed.test is not None
    assert (fed.test.counts == 5).all()
    assert [len(np.unique(labels)) for labels in np.split(fed.train.labels[:60], 3)] == [1, 1, 1]
    assert len(np.unique(fed.train.labels[60:])) == 3
    rows = np.concatenate([fed.train.features, fed.test.features])
    assert len(np.unique(rows, axis=0)) > 0.95 * len(rows)  # some flowers are alike
    part = alpha_convex._federation(panel, 0, validation=0.3).validation
    assert part is not None
    assert part.counts.tolist() == [6, 6, 6, 1, 0, 1, 1, 1, 0, 1, 1, 1, 0]
