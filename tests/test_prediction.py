"""What the models of a run say about rows, from arrays, tables and files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from scipy.special import expit

import scafflix as sx
from scafflix.runs.config import RunConfig, build
from scafflix.runs.runner import execute

RANDOM = np.random.default_rng(0)
N = 90
FRAME = pd.DataFrame(
    {
        "age": np.where(RANDOM.random(N) < 0.1, np.nan, RANDOM.normal(50, 9, N)),
        "kind": RANDOM.choice(["u", "v", "w"], N),
        "dose": RANDOM.normal(size=N),
        "site": RANDOM.choice(["a", "b", "c"], N),
    }
)
FRAME["ill"] = np.where(FRAME.dose + (FRAME.kind == "u") + RANDOM.normal(size=N) > 0.5, "yes", "no")
FRAME["cost"] = 100 * FRAME.dose + RANDOM.normal(size=N)
FRAME["grade"] = RANDOM.integers(3, 6, N)


def run(folder: Path, label: str, model: str, **options: Any) -> sx.Record:
    path = folder / "people.csv"
    FRAME[["age", "kind", "dose", "site", label]].to_csv(path, index=False)
    asked = {"data": str(path), "split": "column:site", "label": label, "model": model,
             "rounds": 5, **options}  # fmt: skip
    execute(build(RunConfig, asked)).save(folder / label)
    return sx.Record.load(folder / label)


@pytest.fixture(scope="module")
def ill(tmp_path_factory: pytest.TempPathFactory) -> sx.Record:
    return run(tmp_path_factory.mktemp("ill"), "ill", "logistic")


@pytest.mark.parametrize("kind", ["personal", "local", "global"])
def test_answers_score_as_the_record_says(ill: sx.Record, kind: str) -> None:
    for place, client in enumerate(ill.clients["client"].tolist()):
        mine = FRAME[FRAME.site == client]
        right = ill.predict(client, mine, model=kind) == mine.ill
        assert right.mean() == pytest.approx(ill.clients[f"train_{kind}"][place])


def test_probabilities_are_those_of_the_training_loss(ill: sx.Record) -> None:
    mine = FRAME[FRAME.site == "b"]
    found = ill.predict_proba("b", mine)[np.arange(len(mine)), (mine.ill == "yes").astype(int)]
    place = ill.clients["client"].tolist().index("b")
    assert -np.log(found).mean() == pytest.approx(ill.clients["train_loss_personal"][place])


def test_frames_arrow_tables_dictionaries_and_files_say_the_same(
    ill: sx.Record, tmp_path: Path
) -> None:
    rows = FRAME[["dose", "kind", "age"]]  # in another order
    rows.to_csv(tmp_path / "rows.csv", index=False)
    rows.to_parquet(tmp_path / "rows.parquet")
    expected = ill.predict_proba("a", rows)
    for given in (
        pa.Table.from_pandas(rows),
        {name: rows[name].tolist() for name in rows},
        tmp_path / "rows.csv",
        str(tmp_path / "rows.parquet"),
    ):
        np.testing.assert_allclose(ill.predict_proba("a", given), expected, rtol=1e-12)


def test_the_global_model_needs_no_client(ill: sx.Record) -> None:
    found = ill.predict(None, FRAME, model="global")
    assert (found == ill.predict("c", FRAME, model="global")).all()


def test_a_regression_answers_with_numbers(tmp_path: Path) -> None:
    record = run(tmp_path, "cost", "linear", l2=0.001, rounds=100)
    assert np.corrcoef(record.predict("a", FRAME), FRAME.cost)[0, 1] > 0.95
    with pytest.raises(sx.ScafflixError, match="no probabilities"):
        record.predict_proba("a", FRAME)


def test_classes_come_back_as_the_labels_were(tmp_path: Path) -> None:
    record = run(tmp_path, "grade", "softmax")
    found = record.predict("a", FRAME)
    assert found.dtype.kind == "i"
    assert set(found.tolist()) <= {3, 4, 5}


def test_a_network_answers_for_a_table(tmp_path: Path) -> None:
    record = run(tmp_path, "ill", "dense", cohort=3, rounds=10, p=0.2, min_examples=5, alpha=1.0)
    mine = FRAME[FRAME.site == "a"]
    assert set(record.predict("a", mine).tolist()) <= {"yes", "no"}
    np.testing.assert_allclose(record.predict_proba("a", mine).sum(axis=1), 1, rtol=1e-6)


def test_an_empty_table_has_no_answers(ill: sx.Record, tmp_path: Path) -> None:
    network = run(tmp_path, "ill", "dense", batch=5, min_examples=1)
    for record in (ill, network):
        found = record.predictor("a")(FRAME.head(0))
        assert found.values.shape == (0,)
        assert found.probabilities is not None
        assert found.probabilities.shape == (0, 2)


def test_a_boolean_column_takes_0_and_1_and_no_other_number(tmp_path: Path) -> None:
    frame = FRAME[["dose", "site", "ill"]].assign(flag=RANDOM.random(N) < 0.5)
    frame.to_csv(tmp_path / "people.csv", index=False)
    asked = {"data": str(tmp_path / "people.csv"), "split": "column:site", "label": "ill"}
    record = execute(build(RunConfig, {**asked, "rounds": 1}))
    as_numbers = frame.assign(flag=frame.flag.astype(int))
    np.testing.assert_array_equal(record.predict("a", as_numbers), record.predict("a", frame))
    with pytest.raises(sx.ScafflixError, match="row 1: column 'flag' is 7, but held booleans"):
        record.predict("a", frame.assign(flag=7))


def test_a_run_on_arrays_answers_for_arrays() -> None:
    fed = sx.data.load("breast_cancer", clients=4, split="shuffled", scale="standard",
                       intercept=True)  # fmt: skip
    problem = sx.Problem(fed, sx.models.logistic())
    person = sx.personalize(problem, alpha=0.5)
    record = sx.run(problem, person, sx.scafflix(sx.plan(problem, person)), rounds=5)
    made = fed.preprocessing
    assert made is not None
    raw = np.linspace(0, 50, 60).reshape(2, 30)
    z = np.hstack([(raw - made.shift) / made.divisor, np.ones((2, 1))]) @ record.model("client-1")
    np.testing.assert_allclose(record.predict_proba("client-1", raw)[:, 1], expit(z))
    with pytest.raises(sx.ScafflixError, match="have 31 features, but the run had 30"):
        record.predict("client-1", np.zeros((1, 31)))


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"drop": "dose"}, "there is no column 'dose'"),
        ({"dose": "much"}, "column 'dose' holds text, but held numbers in training"),
        ({"kind": 3}, "column 'kind' holds numbers, but held text in training"),
    ],
)
def test_a_table_that_does_not_fit_is_one_sentence(
    ill: sx.Record, change: dict[str, Any], says: str
) -> None:
    rows = FRAME.drop(columns=change.pop("drop", [])).assign(**change)
    with pytest.raises(sx.ScafflixError, match=says):
        ill.predict("a", rows)


def test_a_client_that_the_run_does_not_know_is_refused(ill: sx.Record) -> None:
    with pytest.raises(sx.ScafflixError, match=r"no client 'z' .* its clients are"):
        ill.predict("z", FRAME)
