"""Figures on convex problems: several groups of methods on each data set, one table for both."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from scafflix.core.errors import ScafflixError
from scafflix.record import Record
from scafflix.report import triple
from scafflix.runs import convex_figures
from scafflix.runs.convex_figures import comparisons, run
from scafflix.runs.runner import runs_of

SETTINGS: dict[str, Any] = {
    "panels": ["breast_cancer"],
    "clients": 4,
    "split": "contiguous",
    "scale": "maxabs",
    "l2": 0.1,
    "alphas": [1, 0.1],
    "unequal": [0.1, 1],
    "seeds": 2,
    "target": 1e-2,
    "groups": [
        {"methods": ["scafflix"], "rounds": 30},
        {"methods": ["tamuna"], "cohort": 2, "rounds": 30},
    ],
}


@pytest.fixture(scope="module")
def records() -> list[Record]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(convex_figures, "figure_settings", lambda _: dict(SETTINGS))
        configs = comparisons("triple")
    return run(configs, [lambda *_: None] * 2)


def test_each_group_has_its_rounds_and_clients_and_the_drawn_alphas_are_the_same() -> None:
    found = comparisons("triple")
    assert [config.data for config in found] == sorted(
        ["mushrooms", "a6a", "w6a"] * 6, key=["mushrooms", "a6a", "w6a"].index
    )
    drawn = found[0].alphas[-1]
    assert len(drawn) == found[0].clients == 100
    assert min(drawn) >= 0.1
    assert max(drawn) <= 1
    assert all(config.alphas[-1] == drawn for config in found)
    assert {config.cohort for config in found} == {None, 10}


@pytest.mark.parametrize("name", ["fig1", "triple"])
def test_no_figure_asks_for_what_is_refused(name: str) -> None:
    for config in comparisons(name):
        assert runs_of(config)


def test_what_is_refused_is_refused_before_the_first_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(convex_figures, "compare", None)
    with pytest.raises(ScafflixError, match="batch is 'some'"):
        run(comparisons("triple", {"batch": "some"}), [lambda *_: None] * 18)


def test_a_change_holds_for_all_groups() -> None:
    found = comparisons("triple", {"rounds": "7", "alphas": "1"})
    assert {config.rounds for config in found} == {7}
    assert {config.alphas for config in found} == {(1,)}


def test_a_cell_counts_the_rounds_and_what_a_client_sent_in_them(records: list[Record]) -> None:
    (table,) = triple.tables(records, 1e-2)
    names = [row[0] for row in table.rows]
    assert names == ["scafflix", "tamuna, 2 of 4"]
    mine = [r for r in records if r.config["method"] == "scafflix" and r.config["alpha"] == 1]
    rounds = np.median([record.rounds_to(1e-2) for record in mine])
    sent = rounds * 30 * 8 / 1e3  # a model of 30 numbers a round
    assert table.rows[0][1] == f"{rounds:g} / {sent:.1f}"
    assert float(table.rows[1][-1]) <= 1  # the certificate of sampled rounds


def test_the_picture_has_a_row_for_each_alpha(records: list[Record]) -> None:
    axes = triple.figure(records, 1e-2).axes
    assert len(axes) == 3
    assert [len(one.lines) for one in axes] == [3, 3, 3]  # two methods and the target
