"""`scafflix export`, as a user types it."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from safetensors import safe_open

import scafflix as sx
from scafflix.cli import main
from scafflix.export import sklearn_pipeline
from scafflix.runs.config import RunConfig, build
from scafflix.runs.runner import execute

RANDOM = np.random.default_rng(1)
N = 60
FRAME = pd.DataFrame(
    {
        "age": np.where(RANDOM.random(N) < 0.1, np.nan, RANDOM.normal(50, 9, N)),
        "kind": RANDOM.choice(["u", "v"], N),
        "site": ["s", "t"] * (N // 2),
    }
)
FRAME["y"] = np.where(FRAME.age.fillna(50) / 9 + RANDOM.normal(size=N) > 5, "up", "down")
HELD_OUT = FRAME[::3]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("export")
    FRAME.drop(index=HELD_OUT.index).to_csv(place / "people.csv", index=False)
    HELD_OUT.to_csv(place / "others.csv", index=False)
    asked = {"data": str(place / "people.csv"), "split": "column:site", "rounds": 2}
    execute(build(RunConfig, asked)).save(place / "run")
    (place / "there.onnx").write_text("mine")
    return place


def command(monkeypatch: pytest.MonkeyPatch, *words: str) -> int:
    monkeypatch.setattr(sys, "argv", ["scafflix", "export", *words])
    with pytest.raises(SystemExit) as stop:
        main()
    return int(stop.value.code or 0)


@pytest.mark.parametrize("format", ["onnx", "sklearn-json"])
def test_a_file_is_checked_on_held_out_rows(
    format: str,
    folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    out = tmp_path / "model"
    words = [str(folder / "run"), "--client", "s", "--format", format, "-o", str(out)]
    assert command(monkeypatch, *words, "--check", str(folder / "others.csv"), "--json") == 0
    said = json.loads(capfd.readouterr().out)["conclusion"]
    assert float(said.rpartition(" ")[2].rstrip(".")) < 1e-12
    assert out.exists()
    assert command(monkeypatch, *words) == 2  # it is there already
    assert command(monkeypatch, *words, "--force") == 0
    if format == "sklearn-json":
        record = sx.Record.load(folder / "run")
        found = sklearn_pipeline(out).predict(HELD_OUT)
        assert found.tolist() == record.predict("s", HELD_OUT).tolist()


def test_safetensors_hold_weights_and_what_makes_answers_of_them(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "model.safetensors"
    words = ["--model", "global", "--format", "safetensors", "-o", str(out)]
    assert command(monkeypatch, str(folder / "run"), *words) == 0
    record = sx.Record.load(folder / "run")
    assert record.preprocessing is not None
    with safe_open(out, "numpy") as file:
        assert (file.get_tensor("weight") == record.model(None, "global")).all()
        words_of = {name: json.loads(word) for name, word in file.metadata().items()}
    assert words_of["classes"] == ["down", "up"]
    same = json.loads(json.dumps(record.preprocessing.as_dict()))
    assert words_of["preprocessing"] == same


def test_coefficients_are_printed_or_written(
    folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    words = [str(folder / "run"), "--client", "t", "--format", "table"]
    assert command(monkeypatch, *words) == 0
    printed = capfd.readouterr().out
    assert "Coefficients of the personal model of t" in printed
    assert "odds ratio of up" in printed
    assert command(monkeypatch, *words, "-o", str(tmp_path / "coefficients.csv")) == 0
    found = pd.read_csv(tmp_path / "coefficients.csv", keep_default_na=False)
    expected = sx.Record.load(folder / "run").coefficients("t").to_pandas()
    assert found.column.tolist() == ["intercept", "age", "age is missing", "kind", "kind"]
    assert found["value"].tolist() == ["", "", "", "u", "v"]
    np.testing.assert_allclose(found["coefficient of up"], expected["coefficient of up"])


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--client", "z", "--format", "onnx", "-o", "{}/new"], "no client 'z'"),
        (["--format", "onnx", "-o", "{}/new"], "client is None; give the id of a client"),
        (
            ["--client", "s", "--format", "pmml", "-o", "{}/new"],
            "format is 'pmml'; it must be onnx",
        ),
        (["--client", "s", "--format", "onnx", "-o", "{}/there.onnx"], "there.onnx exists"),
        (["--client", "s", "--format", "onnx", "-o", "{}"], "is a folder"),
        (["--client", "s", "--format", "onnx", "-o", "{}/no/new"], "cannot be written"),
        (["--client", "s", "--format", "torch"], "out is missing"),
        (["--client", "s", "--format", "onnx", "--model", "best", "-o", "{}/new"], "model is"),
        (
            ["--client", "s", "--format", "table", "--check", "{}/others.csv", "-o", "{}/new"],
            "gives no answers to check",
        ),
        (
            ["--client", "s", "--format", "onnx", "--check", "{}/nowhere.csv", "-o", "{}/new"],
            "there is no such file",
        ),
    ],
)
def test_bad_input_is_one_sentence_and_nothing_is_written(
    folder: Path,
    words: list[str],
    says: str,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    before = sorted(folder.iterdir())
    assert command(monkeypatch, str(folder / "run"), *(w.format(folder) for w in words)) == 2
    assert says in " ".join(capfd.readouterr().err.split())
    assert sorted(folder.iterdir()) == before
