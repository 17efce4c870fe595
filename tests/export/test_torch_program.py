"""Programs of torch.export answer as our own models do."""

from __future__ import annotations

import io
import json
import zipfile

import numpy as np
import pytest
from exported import FRAME, MADE, of_arrays, of_images, of_table, of_texts

from scafflix.export.made_up import made_up_rows
from scafflix.export.torch_program import torch_answers, torch_content

torch = pytest.importorskip("torch")


@pytest.mark.parametrize("model", ["logistic", "dense"])
def test_a_table_gets_the_same_answers_and_nothing_is_pickled(model: str) -> None:
    predictor = of_table(model)
    content = torch_content(predictor)
    found = torch_answers(content, predictor, FRAME)
    np.testing.assert_allclose(found, predictor(FRAME).probabilities, rtol=1e-5)
    one = torch_answers(content, predictor, FRAME[:1])  # another number of rows
    np.testing.assert_allclose(one, found[:1], rtol=1e-6)
    words = {"scafflix.json": ""}
    torch.export.load(io.BytesIO(content), extra_files=words)
    assert json.loads(words["scafflix.json"])["features"] == list(MADE.names)
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        starts = [archive.read(name)[:2] for name in archive.namelist()]
    assert not {b"PK", b"\x80\x02", b"\x80\x04"} & {*starts}


@pytest.mark.parametrize(("model", "scaled"), [("softmax", True), ("linear", False)])
def test_rows_of_numbers_get_the_same_answers(model: str, scaled: bool) -> None:
    predictor = of_arrays(model, scaled)
    rows = made_up_rows(predictor)
    ours = predictor(rows)
    expected = ours.values if model == "linear" else ours.probabilities
    found = torch_answers(torch_content(predictor), predictor, rows)
    np.testing.assert_allclose(found, expected, rtol=1e-10)


def test_images_get_the_same_answers() -> None:
    predictor = of_images()
    rows = made_up_rows(predictor)
    found = torch_answers(torch_content(predictor), predictor, rows)
    np.testing.assert_allclose(found, predictor(rows).probabilities, rtol=1e-3, atol=1e-6)


def test_texts_get_the_same_logits() -> None:
    predictor = of_texts()
    rows = made_up_rows(predictor)
    found = torch_answers(torch_content(predictor), predictor, rows)
    np.testing.assert_allclose(found, predictor(rows).values, rtol=1e-4, atol=1e-5)
