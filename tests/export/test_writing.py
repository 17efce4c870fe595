"""Which models go into which files, and what is refused."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest
from exported import FRAME, of_images, of_table
from safetensors.numpy import load_file

from scafflix.core.errors import ScafflixError
from scafflix.export import onnx_file, writing
from scafflix.export.writing import write


@pytest.mark.parametrize(
    ("model", "format", "says"),
    [
        ("lstm", "table", "The model lstm cannot be written as table; choose onnx or safetensors"),
        ("cnn", "sklearn-json", "choose onnx or safetensors or torch"),
        ("dense", "table", "choose onnx or sklearn-json or safetensors or torch"),
        ("my model", "torch", "The model my model cannot be written as torch"),
    ],
)
def test_a_format_that_a_model_lacks_is_one_sentence(
    model: str, format: str, says: str, tmp_path: Path
) -> None:
    with pytest.raises(ScafflixError, match=says):
        write(replace(of_images(), model=model), tmp_path / "file", format)
    assert not list(tmp_path.iterdir())


def test_every_model_has_safetensors(tmp_path: Path) -> None:
    predictor = replace(of_images(), model="my model")
    write(predictor, tmp_path / "file", "safetensors")
    found = load_file(tmp_path / "file")
    assert found.keys() == predictor.weights.keys()
    assert all((found[name] == predictor.weights[name]).all() for name in found)


def test_a_library_that_is_absent_is_one_sentence_that_names_the_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(ScafflixError, match=r"onnx is not installed; run: pip install 'scafflix\["):
        write(of_table("logistic"), tmp_path / "file", "onnx")


@pytest.mark.parametrize("rows", [None, FRAME])
def test_a_file_that_answers_otherwise_is_not_written(
    rows: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("onnxruntime")
    wrong = writing.FORMATS["onnx"]._replace(
        answers=lambda *given: onnx_file.onnx_answers(*given) + 1e-3
    )
    monkeypatch.setitem(writing.FORMATS, "onnx", wrong)
    with pytest.raises(ScafflixError, match=r"differ from the model's by up to 0.001"):
        write(of_table("logistic"), tmp_path / "file", "onnx", check=rows)
    assert not list(tmp_path.iterdir())


def test_a_check_says_by_how_much_answers_differ(tmp_path: Path) -> None:
    found = write(of_table("linear"), tmp_path / "file", "sklearn-json", check=FRAME)
    assert found is not None
    assert 0 <= found < 1e-12
