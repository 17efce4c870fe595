"""Published tables made again, on data small enough to check it by hand."""

from __future__ import annotations

import csv
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import scafflix as sx
from scafflix.cli import main
from scafflix.methods.fedavg import fedavg
from scafflix.report import published as drawing
from scafflix.runs import published
from scafflix.runs.published import BUDGET, END, Study
from scafflix.runs.runner import figure_settings
from scafflix.runs.studies import divided

LINES: list[dict[str, Any]] = [
    {"label": "odds", "models": "frequent"},
    {"label": "alone", "models": "alone", "published": [70.0], "spread": 1.5},
    {"label": "theirs", "published": [71.0, 73.0]},
    {"label": "all", "models": "pooled"},
    {"label": "FedAvg", "method": "fedavg", "budget": {}},
    {"label": "mine", "method": "scafflix", "alpha": "auto"},
]
SETTINGS: dict[str, Any] = {
    "title": "made up",
    "data": "made up",
    "metric": "accuracy",
    "train": 0.5,
    "first": 7,
    "divisions": 2,
    "each": True,
    "l2": 0.1,
    "rounds": 3,
    "lines": LINES,
}
BUDGETS = {"rounds": 2, "p": 0.2, "batch": 4, "stepsize": 0.01, "starts": 3}
WHOLE = sx.data.load("synthetic:rows=40,features=3,optima=2", clients=4)


@pytest.fixture
def settings(monkeypatch: pytest.MonkeyPatch, cache: Path) -> None:
    found = {"heart": {**SETTINGS, "budget": BUDGETS}, "landmine": {**SETTINGS, "metric": "area"}}
    monkeypatch.setattr(published, "figure_settings", lambda name: found)
    monkeypatch.setattr(published, "load", lambda name: WHOLE)


@pytest.fixture
def study(settings: None) -> Study:
    return published.study("heart")


def test_every_division_is_trained_to_the_end_and_the_first_also_as_published(
    study: Study, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, alone, theirs, _, fedavg, mine = study.lines
    assert [one.division for one in alone.ours] == [0, 1]
    assert theirs.ours == []
    assert [(one.division, one.start) for one in fedavg.trained(BUDGET)] == [(0, 0), (0, 1), (0, 2)]
    assert len({tuple(one.loss) for one in fedavg.trained(BUDGET)}) == 3  # by the start
    assert mine.trained(BUDGET) == []
    monkeypatch.setattr(published, "_outcomes", None)
    assert published.study("heart") == study  # from the cache


def test_the_tables_have_ours_beside_theirs_and_beside_alone(study: Study) -> None:
    beside, apart = drawing.tables(study)
    assert beside.header == ("", "published", BUDGET, END, "2 divisions")
    rows = {row[0]: row[1:] for row in beside.rows}
    assert rows["theirs"] == ("71.0 to 73.0", "", "", "")
    assert rows["alone"][0] == "70.0 ± 1.5"
    alone, mine = study.lines[1].ours, study.lines[-1].ours
    means = [100 * np.mean(one.score) for one in mine]
    assert rows["mine"][1:] == (
        *("", f"{means[0]:.1f}"),
        f"{np.mean(means):.1f} ± {np.std(means, ddof=1):.1f}",
    )
    worse = np.mean([np.greater(a.loss, b.loss) for a, b in zip(mine, alone, strict=True)])
    assert apart.rows[-1][-1] == f"{100 * worse:.0f} %"
    assert [row[0] for row in apart.rows] == ["odds", "alone", "all", "FedAvg", "mine"]


def test_the_picture_has_a_line_for_each_and_says_which_dots_are_whose(study: Study) -> None:
    picture = drawing.figure(study)
    (axes,) = picture.axes
    labels = [text.get_text() for text in axes.get_yticklabels()]
    assert labels == [line.label for line in reversed(study.lines)]
    legend = [text.get_text() for text in picture.legends[0].get_texts()]
    assert legend == ["published", "ours, trained as published", "ours, to the end"]


@pytest.mark.usefixtures("settings")
def test_the_command_writes_a_picture_the_tables_and_every_clients_score(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    words = ["reproduce", "landmine", "--set", "divisions=1", "--out", str(out)]
    monkeypatch.setattr(sys, "argv", ["scafflix", *words])
    with pytest.raises(SystemExit) as stop:
        main()
    assert stop.value.code == 0
    assert (out / "landmine.md").read_text().startswith("**made up: area under the ROC curve")
    assert (out / "landmine.png").stat().st_size > 10_000
    with (out / "landmine.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 5 * len(WHOLE.clients)
    odds = [float(row["score"]) for row in rows if row["line"] == "odds"]
    assert odds == [0.5] * len(WHOLE.clients)  # every pair is a tie


@pytest.mark.usefixtures("settings")
@pytest.mark.parametrize(
    ("name", "changes", "says"),
    [
        ("heart", {"seeds": "1"}, "no key 'seeds' of this study; it has divisions"),
        ("heart", {"starts": "0"}, "starts is '0'; give numbers of at least 1"),
        ("heart", {"each": "no"}, "each is 'no'; it must be true or false"),
        ("heart", {"l2": "x"}, "l2 is 'x'; it must be a number"),
        ("landmine", {"starts": "1"}, "no key 'starts'"),
    ],
)
def test_changes_that_make_no_sense_are_one_sentence(
    name: str, changes: dict[str, str], says: str
) -> None:
    with pytest.raises(sx.ScafflixError, match=says):
        published.study(name, changes)


def made_problem() -> sx.Problem:
    half = [{"train": np.arange(5 + k), "test": np.arange(5 + k, 10)} for k in range(4)]
    return sx.Problem(divided(WHOLE, half, each=True), sx.models.logistic(), l2=0.1)


def test_each_client_is_standardized_by_its_own_training_rows() -> None:
    rows = np.array([[1.0, 5.0], [3.0, 5.0], [9.0, 6.0]])
    whole = sx.data.from_clients({"a": (rows, [0, 1, 0]), "b": (10 * rows, [1, 0, 1])})
    cuts = [{"train": np.array([0, 1]), "test": np.array([2])}] * 2
    made = divided(whole, cuts, each=True)
    np.testing.assert_allclose(made.train.features, [[-1, 0, 1], [1, 0, 1]] * 2)
    # a feature that is constant in training is only centred
    np.testing.assert_allclose(made.test.features, [[7, 1, 1], [7, 10, 1]])
    common = divided(whole, cuts)
    np.testing.assert_allclose(common.train.features.mean(axis=0), [0, 0, 1], atol=1e-12)
    np.testing.assert_allclose(common.train.features.std(axis=0), [1, 1, 0])


def test_the_pooled_model_is_optimal_for_the_rows_of_all_clients() -> None:
    problem = made_problem()
    (x, *others) = published._pooled(problem)
    assert all((one == x).all() for one in others)
    train = problem.federation.train
    signs = np.where(train.labels == train.labels.max(), 1.0, -1.0)
    slopes = -signs / (1 + np.exp(signs * (train.features @ x)))
    np.testing.assert_allclose(train.features.T @ slopes / len(signs) + 0.1 * x, 0, atol=1e-8)


def test_without_features_a_client_predicts_its_most_frequent_label() -> None:
    problem = made_problem()
    models = published._frequent(problem)
    assert (models[:, :-1] == 0).all()
    for model, client in zip(models, range(problem.n), strict=True):
        mine = problem.labels["train"][problem.federation.train.owners == client]
        assert np.sign(model[-1]) == np.sign(mine.sum())


def test_a_published_round_weighs_clients_by_their_rows_and_has_as_many_steps_each_time() -> None:
    problem = made_problem()
    person = sx.personalize(problem, 1.0)
    method = published._with_published_rounds(fedavg(sx.plan(problem, person), 0.1, p=1 / 3))
    (found,) = sx.sweep(problem, [sx.Run(person, method)], rounds=1, start="zeros")
    train = problem.federation.train
    ends = []
    for first, end in zip(train.offsets[:-1], train.offsets[1:], strict=True):
        A, signs, x = train.features[first:end], problem.labels["train"][first:end], np.zeros(4)
        for _ in range(3):
            slopes = -signs / (1 + np.exp(signs * (A @ x)))
            x = x - 0.1 * (A.T @ slopes / len(A) + 0.1 * x)
        ends.append(x)
    expected = np.average(ends, axis=0, weights=train.counts)
    np.testing.assert_allclose(found.models["global"], expected, rtol=1e-9)


def test_the_first_division_of_heart_has_the_sizes_that_flamby_tells(
    shared_data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SCAFFLIX_DATA", str(shared_data))
    whole = sx.data.load("heart")
    cuts = published._cuts(figure_settings("published")["heart"], whole, 0)
    sizes = [(len(cut["train"]), len(cut["test"])) for cut in cuts]
    assert sizes == [(199, 104), (172, 89), (30, 16), (85, 45)]


@pytest.mark.parametrize("name", ["heart", "landmine"])
def test_every_line_of_a_study_has_figures_of_theirs_or_models_of_ours(name: str) -> None:
    settings = figure_settings("published")[name]
    labels = [line["label"] for line in settings["lines"]]
    assert len(set(labels)) == len(labels)
    assert drawing.ALONE in labels
    for line in settings["lines"]:
        assert {"published", "models", "method"} & set(line)
        if "method" in line:
            published._config(settings, line, 1, 0)
