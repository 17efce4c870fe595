"""Rivals in personalization: settings chosen on validation data, for each division anew."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from scafflix.core.checkpoint import Checkpoints, Often
from scafflix.core.errors import ScafflixError
from scafflix.report import rivals
from scafflix.runs import reproduction
from scafflix.runs.config import Scale
from scafflix.runs.reproduction import Panel, plans, reproduce
from scafflix.runs.runner import figure_settings

DATA = {
    "common": {
        "data": "iris",
        "clients": 3,
        "split": "shuffled",
        "model": "softmax",
        "l2": 0.01,
        "test": 0.2,
        "validation": 0.2,
        "alpha": 1.0,
        "by": "loss",
        "seeds": 1,
    },
    "smoke": {"rounds": 3, "tuning_rounds": 3, "divisions": 2},
}
PULLS = ("ditto:pull=0.01", "ditto:pull=1")
FIGURE = {
    "panels": [{"title": "Iris", "on": "iris", "compares": "convex"}],
    "lines": {
        "convex": [
            {"label": "Ditto", "method": "ditto", "tries": [{"method": one} for one in PULLS]},
            {"label": "Scafflix", "method": "scafflix", "tries": [{"alpha": 0.5}]},
        ]
    },
}


@pytest.fixture(scope="module")
def panel(tmp_path_factory: pytest.TempPathFactory) -> Panel:
    settings: dict[str, Any] = {"rivals": FIGURE, "iris": DATA}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SCAFFLIX_CACHE", str(tmp_path_factory.mktemp("cache")))
        patch.setattr(reproduction, "figure_settings", settings.__getitem__)
        place = Checkpoints(tmp_path_factory.mktemp("checkpoints"), Often(rounds=1))
        (made,) = reproduce("rivals", Scale.smoke, checkpoints=place)
    return made


def test_each_division_has_the_setting_with_the_least_validation_loss(panel: Panel) -> None:
    ditto, scafflix = panel.lines
    tried = panel.tried["Ditto"]
    for division, record in enumerate(ditto.records):
        mine = tried[2 * division : 2 * division + 2]
        least = min(mine, key=lambda trial: trial.cell.loss).setting
        assert ditto.chosen[division] == least
        assert record.config["method"] == least["method"]
        assert record.config["data_seed"] == division
        assert record.config["part"] == "test"
    assert [record.config["alpha"] for record in scafflix.records] == [0.5, 0.5]


def test_the_table_has_the_clients_of_every_division_and_the_models_alone(panel: Panel) -> None:
    alone, ditto, _ = rivals.table(panel).rows
    records = panel.lines[0].records
    losses = [record.clients["test_loss_personal"].mean() for record in records]
    error = np.std(losses, ddof=1) / np.sqrt(2)
    assert ditto[2] == f"{np.mean(losses):.4f} ± {error:.4f}"
    assert alone[0] == "alone"
    assert alone[2].startswith(f"{np.mean([r.clients['test_loss_local'] for r in records]):.4f}")
    worse = [r.clients["test_loss_personal"] > r.clients["test_loss_local"] for r in records]
    tables = [record.clients for record in records]
    right = [np.average(table["test_personal"], weights=table["test_examples"]) for table in tables]
    assert ditto[3].startswith(f"{100 * np.mean(right):.1f} ±")
    assert ditto[8] == f"{100 * np.mean(worse):.0f} %"


def test_the_picture_has_a_dot_for_each_method(panel: Panel, tmp_path: Path) -> None:
    (axes,) = rivals.figure([panel]).axes
    assert [text.get_text() for text in axes.get_yticklabels()] == ["Scafflix", "Ditto"]
    rivals.write([panel], tmp_path, "rivals")
    assert (tmp_path / "rivals.md").read_text().startswith("**Iris: test loss and accuracy")


def test_every_line_has_a_seed_before_any_has_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings: dict[str, Any] = {"rivals": FIGURE, "iris": DATA}
    monkeypatch.setenv("SCAFFLIX_CACHE", str(tmp_path))
    monkeypatch.setattr(reproduction, "figure_settings", settings.__getitem__)
    said: list[str] = []

    def progress(done: int, total: int, words: Any) -> None:
        said.append(words.partition(":")[0])

    reproduce("rivals", Scale.smoke, {"seeds": "2", "divisions": "1"}, progress)
    seeds = [words for words in dict.fromkeys(said) if "seed" in words]
    assert seeds == ["Ditto, seed 0", "Scafflix, seed 0", "Ditto, seed 1", "Scafflix, seed 1"]


@pytest.mark.parametrize("scale", Scale)
def test_every_rival_has_the_same_budget(scale: Scale) -> None:
    for _, tasks in plans("rivals", scale, {}):
        budgets = {task.label: len(task.tries) for task in tasks}
        few = budgets["Scafflix, alpha auto"]  # the stepsizes: it tries no setting of its own
        assert {budget for budget in budgets.values() if budget > few} == {max(budgets.values())}
        assert few <= 4
        assert len(budgets) >= 9


def test_panels_are_chosen_by_their_numbers() -> None:
    titles = [title for title, _ in plans("rivals", Scale.laptop, {"panels": "2,0"})]
    assert titles == ["Digits, 20 clients", "Heart, four hospitals"]
    with pytest.raises(ScafflixError, match="There is no panel 4; give numbers from 0 to 3"):
        list(plans("rivals", Scale.laptop, {"panels": "4"}))


def test_the_figure_names_every_personalizer() -> None:
    lines = figure_settings("rivals")["lines"]
    named = {line["method"] for kind in lines.values() for line in kind}
    assert named == {
        *("fedavg", "finetuning", "ditto", "mr_mtl", "l2gd", "pfedme", "apfl", "per_fedavg"),
        *("fedper", "fedrep", "scafflix"),
    }
