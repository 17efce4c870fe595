"""`scafflix predict`, as a user types it."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import scafflix as sx
from scafflix.cli import main
from scafflix.runs.config import RunConfig, build
from scafflix.runs.runner import execute

RANDOM = np.random.default_rng(1)
FRAME = pd.DataFrame({"a": RANDOM.normal(size=40), "site": ["s", "t"] * 20})
FRAME["y"] = np.where(FRAME.a + RANDOM.normal(size=40) > 0, "up", "down")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("predict")
    FRAME.to_csv(place / "people.csv", index=False)
    asked = {"data": str(place / "people.csv"), "split": "column:site", "rounds": 2}
    execute(build(RunConfig, asked)).save(place / "run")
    pd.DataFrame({"name": ["x, y", "z"], "a": [3.0, None]}).to_csv(place / "new.csv", index=False)
    return place


def command(monkeypatch: pytest.MonkeyPatch, *words: str) -> int:
    monkeypatch.setattr(sys, "argv", ["scafflix", "predict", *words])
    with pytest.raises(SystemExit) as stop:
        main()
    return int(stop.value.code or 0)


def test_answers_are_written_in_the_order_of_the_rows(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "answers.csv"
    words = [
        str(folder / "run"),
        "--client",
        "s",
        "--data",
        str(folder / "new.csv"),
        "-o",
        str(out),
    ]
    assert command(monkeypatch, *words, "--columns") == 0
    found = pd.read_csv(out)
    record = sx.Record.load(folder / "run")
    rows = pd.read_csv(folder / "new.csv")
    assert found["name"].tolist() == ["x, y", "z"]
    assert found["predicted y"].tolist() == record.predict("s", rows).tolist()
    probable = found[["probability of down", "probability of up"]].to_numpy()
    np.testing.assert_allclose(probable, record.predict_proba("s", rows))
    assert command(monkeypatch, *words) == 2  # it is there already


def test_the_columns_that_are_kept_stay_as_they_were_written(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = "patient;a;when;note\n007;1,50;31.1.2024;NA\n010;;1.2.2024;\n"
    (tmp_path / "new.csv").write_text(rows)
    words = [str(folder / "run"), "--client", "s", "--data", str(tmp_path / "new.csv")]
    assert command(monkeypatch, *words, "--columns", "-o", str(tmp_path / "out.csv")) == 0
    found = pd.read_csv(tmp_path / "out.csv", dtype=str, keep_default_na=False)
    given = pd.read_csv(tmp_path / "new.csv", sep=";", dtype=str, keep_default_na=False)
    pd.testing.assert_frame_equal(found[given.columns.tolist()], given)


def test_without_a_file_answers_are_printed(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    words = [str(folder / "run"), "--model", "global", "--data", str(folder / "new.csv")]
    assert command(monkeypatch, *words) == 0
    assert capfd.readouterr().out.startswith('"predicted y","probability of down"')


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--client", "z", "--data", "{}/new.csv"], "no client 'z'"),
        (["--data", "{}/new.csv"], "client is None; give the id of a client (s, t)"),
        (["--client", "s", "--data", "{}/nowhere.csv"], "there is no such file"),
        (["--client", "s", "--data", "{}/new.csv", "--model", "best"], "model is 'best'"),
        (["--client", "s", "--data", "{}/new.csv", "-o", "{}/answers.txt"], "choose one"),
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
