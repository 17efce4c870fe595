"""The study of rules for alpha, on data small enough to check it by hand."""

from __future__ import annotations

from pathlib import Path

import pytest

import scafflix as sx
from scafflix.report import alpha_study as drawing
from scafflix.runs import alpha_study

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
        }
    ],
}


@pytest.fixture
def settings(monkeypatch: pytest.MonkeyPatch, cache: Path) -> None:
    monkeypatch.setattr(alpha_study, "figure_settings", lambda name: dict(SETTINGS))


@pytest.mark.usefixtures("settings")
def test_lines_that_are_the_same_models_fare_the_same_and_are_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (found,) = alpha_study.study()
    ends, rounds = found.ends, found.rounds
    assert ends["alpha 1"] == ends["global"] == rounds["alpha 1, as trained"][4]
    assert ends["loo"] == rounds["alpha 1, chosen"][4]
    assert rounds["alpha 0.3, then 1, chosen"][1] == rounds["alpha 0.3, chosen"][1]
    assert all(fate.hurt == 0 for fate in ends["local"])
    assert list(found.newcomers) == [5, 9]
    lines = ("alone", "global", "fine-tuned", "adapted")
    counts = {line: len(fates) for line, fates in found.newcomers[5].items()}
    assert counts == dict.fromkeys(lines, 2)
    titles = [table.title for table in drawing.tables([found])]
    assert titles[-1] == "made up: test loss of newcomers with so many examples"
    assert drawing.hindsight(found) in ("local", "alpha 0.3", "alpha 0.5", "alpha 1")
    assert len(drawing.figure([found]).axes) == 1

    def nobody(*_: object) -> dict[str, object]:
        raise AssertionError

    monkeypatch.setattr(alpha_study, "_division", nobody)
    assert alpha_study.study() == [found]


@pytest.mark.usefixtures("settings")
@pytest.mark.parametrize(
    ("changes", "says"),
    [({"l2": "1"}, "no key 'l2'"), ({"rounds": "x"}, "whole numbers"), ({"looks": "0"}, "least 1")],
)
def test_changes_that_make_no_sense_are_one_sentence(changes: dict[str, str], says: str) -> None:
    with pytest.raises(sx.ScafflixError, match=says):
        alpha_study.study(changes)
