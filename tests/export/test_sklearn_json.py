"""A pipeline of scikit-learn's own parts answers as our own models do."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from exported import FRAME, TABLE_MODELS, of_arrays, of_table
from sklearn.base import clone
from sklearn.utils.validation import check_is_fitted

from scafflix.core.errors import ScafflixError
from scafflix.data.preprocessing import Column
from scafflix.export import sklearn_pipeline
from scafflix.export.made_up import made_up_rows
from scafflix.export.sklearn_json import sklearn_content
from scafflix.prediction import Predictor


def reread(predictor: Predictor, folder: Path) -> Any:
    (folder / "model.json").write_bytes(sklearn_content(predictor))
    return sklearn_pipeline(folder / "model.json")


def check_alike(pipeline: Any, predictor: Predictor, rows: Any, given: Any) -> None:
    ours = predictor(given)
    if ours.probabilities is None:
        np.testing.assert_allclose(pipeline.predict(rows), ours.values, rtol=1e-10)
        return
    rtol = 1e-4 if predictor.model == "dense" else 1e-10
    found = pipeline.predict_proba(rows)
    np.testing.assert_allclose(found, ours.probabilities, rtol=rtol, atol=1e-14)
    assert pipeline.predict(rows).tolist() == ours.values.tolist()
    assert pipeline.classes_.tolist() == predictor.named(np.arange(len(ours.classes))).tolist()


@pytest.mark.parametrize("model", TABLE_MODELS)
def test_a_frame_gets_the_same_answers(model: str, tmp_path: Path) -> None:
    predictor = of_table(model)
    pipeline = reread(predictor, tmp_path)
    check_is_fitted(pipeline)
    check_alike(pipeline, predictor, FRAME, FRAME)
    check_alike(pipeline, predictor, FRAME[FRAME.columns[::-1]], FRAME)  # by name, not by place
    dates_as_text = FRAME.assign(seen=FRAME.seen.astype(str).replace("NaT", None))
    check_alike(pipeline, predictor, dates_as_text, FRAME)
    made_up = made_up_rows(predictor)
    check_alike(pipeline, predictor, made_up.to_pandas(), made_up)


@pytest.mark.parametrize("model", TABLE_MODELS)
@pytest.mark.parametrize("scaled", [True, False])
def test_rows_of_numbers_get_the_same_answers(model: str, scaled: bool, tmp_path: Path) -> None:
    predictor = of_arrays(model, scaled)
    rows = made_up_rows(predictor)
    check_alike(reread(predictor, tmp_path), predictor, rows, rows)


@pytest.mark.parametrize("model", ["softmax", "dense"])
def test_two_classes_of_booleans_come_back(model: str, tmp_path: Path) -> None:
    found = of_arrays(model, True)
    last = {"layer1/weight": 2, "layer1/bias": 2}
    weights = (
        found.weights[:, :2]
        if model == "softmax"
        else {name: a[..., : last.get(name, a.shape[-1])] for name, a in found.weights.items()}
    )
    predictor = Predictor(model, weights, ("False", "True"), "boolean", found.preprocessing)
    rows = made_up_rows(predictor)
    check_alike(reread(predictor, tmp_path), predictor, rows, rows)


def test_it_is_a_pipeline_like_any_other(tmp_path: Path) -> None:
    pipeline = reread(of_table("logistic"), tmp_path)
    clone(pipeline)
    names = pipeline[:-1].get_feature_names_out().tolist()
    assert names[:2] == ["age", "missingindicator_age"]
    assert len(names) == 12


@pytest.mark.parametrize(
    ("changes", "rows"),
    [
        ({"unknown": "refuse"}, FRAME[4:5]),
        ({"columns": (Column("age", "number"),)}, FRAME[2:3]),
        ({"columns": (Column("ward", "code", ("1",)),)}, FRAME[4:5]),
    ],
)
def test_what_the_run_refuses_is_refused(
    changes: dict[str, Any], rows: Any, tmp_path: Path
) -> None:
    predictor = of_table("logistic", **changes)
    with pytest.raises(ScafflixError):
        predictor(rows)
    with pytest.raises(ValueError, match=r"unknown categories|NaN|missing value"):
        reread(predictor, tmp_path).predict(rows)


def test_reading_loads_nothing_that_trains(tmp_path: Path) -> None:
    (tmp_path / "model.json").write_bytes(sklearn_content(of_table("logistic")))
    script = (
        "import sys; from scafflix.export import sklearn_pipeline; "
        f"sklearn_pipeline({str(tmp_path / 'model.json')!r}); "
        "print({'jax', 'torch', 'scafflix.prediction', 'scafflix.methods'} & set(sys.modules))"
    )
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert ran.stdout == "set()\n"


@pytest.mark.parametrize("change", ["words", "format", "weights"])
def test_a_file_that_holds_something_else_is_one_sentence(change: str, tmp_path: Path) -> None:
    words = json.loads(sklearn_content(of_table("logistic")))
    if change == "format":
        words["format"] = 7
    if change == "weights":
        del words["weights"]
    text = "a model" if change == "words" else json.dumps(words)
    (tmp_path / "model.json").write_text(text)
    with pytest.raises(ScafflixError, match=r"model\.json does not hold a model"):
        sklearn_pipeline(tmp_path / "model.json")
    with pytest.raises(ScafflixError, match=r"nothing\.json cannot be read"):
        sklearn_pipeline(tmp_path / "nothing.json")
