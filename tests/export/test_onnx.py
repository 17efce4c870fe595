"""ONNX files answer as our own models do, with the preprocessing inside."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from exported import FRAME, TABLE_MODELS, of_arrays, of_images, of_table, of_texts

from scafflix.data.preprocessing import Column
from scafflix.export.made_up import made_up_rows
from scafflix.export.onnx_file import onnx_answers, onnx_content
from scafflix.prediction import Predictor

onnxruntime = pytest.importorskip("onnxruntime")


def session_of(predictor: Predictor) -> Any:
    return onnxruntime.InferenceSession(onnx_content(predictor), providers=["CPUExecutionProvider"])


def feed(session: Any, rows: Any) -> dict[str, Any]:
    """What a user gives: the columns of a frame."""
    given = {}
    for column in session.get_inputs():
        values = rows[[column.name]]
        if column.name == "seen":
            values = values.apply(
                lambda one: (one - np.datetime64(0, "s")).dt.total_seconds() / 86400
            )
        if column.name == "ward":
            values = values.map(lambda one: "" if one != one else f"{one:g}")
        text = column.type == "tensor(string)"
        given[column.name] = values.fillna("").to_numpy(str) if text else values.to_numpy(float)
    return given


@pytest.mark.parametrize("model", TABLE_MODELS)
def test_a_table_gets_the_same_answers(model: str) -> None:
    predictor = of_table(model)
    session = session_of(predictor)
    *labels, found = session.run(None, feed(session, FRAME))
    ours = predictor(FRAME)
    if model == "linear":
        np.testing.assert_allclose(found, ours.values, rtol=1e-12)
        return
    rtol = 1e-5 if model == "dense" else 1e-12
    np.testing.assert_allclose(found, ours.probabilities, rtol=rtol, atol=1e-14)
    assert labels[0].tolist() == ours.values.tolist()


@pytest.mark.parametrize("model", TABLE_MODELS)
@pytest.mark.parametrize("scaled", [True, False])
def test_rows_of_numbers_get_the_same_answers(model: str, scaled: bool) -> None:
    predictor = of_arrays(model, scaled)
    rows = made_up_rows(predictor)
    ours = predictor(rows)
    expected = ours.values if model == "linear" else ours.probabilities
    np.testing.assert_allclose(
        onnx_answers(onnx_content(predictor), predictor, rows), expected, rtol=1e-5
    )


def test_images_get_the_same_answers() -> None:
    predictor = of_images()
    rows = made_up_rows(predictor)
    found = onnx_answers(onnx_content(predictor), predictor, rows)
    np.testing.assert_allclose(found, predictor(rows).probabilities, rtol=1e-3, atol=1e-6)


def test_texts_get_the_same_logits() -> None:
    predictor = of_texts()
    rows = made_up_rows(predictor)
    found = onnx_answers(onnx_content(predictor), predictor, rows)
    np.testing.assert_allclose(found, predictor(rows).values, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("changes", "rows", "says"),
    [
        ({"unknown": "refuse"}, FRAME[4:5], "'kind of pain' has a text that no training row has"),
        ({"columns": (Column("age", "number"),)}, FRAME[1:2], "'age' has a missing value"),
        ({"columns": (Column("age", "number"),)}, FRAME[2:3], "'age' has a missing value"),
        ({"columns": (Column("ward", "code", ("1",)),)}, FRAME[4:5], "'ward' has a missing value"),
    ],
)
def test_what_the_run_refuses_is_an_error_that_names_the_column(
    changes: dict[str, Any], rows: Any, says: str
) -> None:
    session = session_of(of_table("logistic", **changes))
    session.run(None, feed(session, FRAME[:1]))
    with pytest.raises(Exception, match=says):
        session.run(None, feed(session, rows))


def test_names_of_columns_that_are_taken_or_empty_find_another() -> None:
    columns = (
        Column("label", "number", fill=0.0),
        Column("", "number", fill=0.0),
        Column("constant", "text", ("u",), "u"),
    )
    predictor = of_table("logistic", columns=columns)
    session = session_of(predictor)
    assert [one.name for one in session.get_inputs()] == ["label", "column 2", "constant"]
    assert [one.name for one in session.get_outputs()] == ["label 2", "probabilities"]
    rows = made_up_rows(predictor)
    found = onnx_answers(onnx_content(predictor), predictor, rows)
    np.testing.assert_allclose(found, predictor(rows).probabilities)


def test_every_input_says_what_it_takes() -> None:
    import onnx

    model = onnx.load_from_string(onnx_content(of_table("logistic")))
    said = {one.name: one.doc_string for one in model.graph.input}
    assert said["seen"].startswith("days since 1970")
    assert said["kind of pain"] == "a text; empty where it is missing"
