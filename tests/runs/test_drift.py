"""FedAvg against Scafflix on the same objective, with clients that drift more or less."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from scafflix.report import drift
from scafflix.runs.config import Scale
from scafflix.runs.reproduction import plans, reproduce

LONG = (Scale.laptop, Scale.machine, Scale.paper)
WRITERS = "0,1,2,3,4,5,6,7"  # the panels on FEMNIST
FEW = {"model": "dense", "batch": 5, "min_examples": 5, "grid": [1e-5], "panels": "0,5"}


@pytest.mark.parametrize("scale", Scale)
def test_both_methods_minimize_the_same_objective_with_the_same_search(scale: Scale) -> None:
    for _, (first, second) in plans("drift", scale, {}):
        assert (first.config.method, second.config.method) == ("fedavg", "scafflix")
        assert replace(first.config, method="scafflix") == second.config
        assert (second.config.alpha, second.config.optima) == (1, "none")
        assert first.compared == second.compared
        assert first.tries == second.tries


@pytest.mark.parametrize("scale", LONG)
def test_all_panels_with_as_many_writers_make_the_same_local_steps(scale: Scale) -> None:
    steps: dict[int | None, set[float]] = {}
    for _, (task, _) in plans("drift", scale, {"panels": WRITERS}):
        assert not isinstance(task.config.p, str)
        steps.setdefault(task.config.cohort, set()).add(round(task.config.rounds / task.config.p))
    assert set(steps) == {10, 30}
    assert all(len(found) == 1 for found in steps.values())


def test_the_most_unlike_come_first() -> None:
    tasks = [first for _, (first, _) in plans("drift", Scale.machine, {})]
    assert [task.config.split for task in tasks] == ["classes:0.33"] * 4 + [None] * 5
    assert [task.config.p for task in tasks] == [0.05, 0.2] * 4 + [0.2]
    assert [task.config.data for task in tasks] == ["femnist"] * 8 + ["shakespeare"]


def test_the_table_is_about_the_global_model(
    miniatures: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SCAFFLIX_DATA", str(miniatures))
    monkeypatch.setenv("SCAFFLIX_CACHE", str(tmp_path / "cache"))
    unlike, alike = reproduce("drift", Scale.smoke, FEW)
    for panel in (unlike, alike):
        for line, row in zip(panel.lines, drift.table(panel).rows, strict=True):
            (record,) = line.records
            scores = 100 * np.sort(record.clients["test_global"])
            loss = record.clients["test_loss_global"].mean()
            assert row[:4] == (line.label, "1e-05", f"{loss:.4f}", f"{scores.mean():.1f}")
            assert row[4] == f"{np.quantile(scores, 0.1):.1f}"
            assert row[5] == f"{scores[0]:.1f}"  # of six clients
    counts = [
        panel.lines[0].records[0].clients["train_examples"].sum() for panel in (unlike, alike)
    ]
    assert counts[0] < counts[1] / 2
