"""`scafflix data`, where clients are people."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path

import pytest
from rich.console import Console

from scafflix import data
from scafflix.cli import data as commands
from scafflix.cli import main
from scafflix.data.download import Progress


def call(words: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["scafflix", "data", *words])
    with pytest.raises(SystemExit) as stop:
        main()
    assert stop.value.code == 0


def test_list_tells_images_and_sequences_from_features(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SCAFFLIX_CACHE", str(tmp_path))
    monkeypatch.delenv("SCAFFLIX_DATA", raising=False)
    call(["list"], monkeypatch)
    said = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["femnist", "3400", "749068", "62", "no", "28", "x", "28", "images", "FedJAX"] in said
    assert ["shakespeare", "715", "90", "no", "sequences", "of", "80", "FedJAX"] in said
    assert ["iris", "150", "3", "yes", "4", "features", "scikit-learn"] in said


def test_describe_says_what_an_example_is_and_who_was_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    roles = [("GHOST", ["Mark me. " * 40]), ("Voice", [])]
    path = tmp_path / "roles.jsonl"
    path.write_text(
        "".join(
            json.dumps({"play": "Hamlet", "role": role, "lines": lines}) + "\n"
            for role, lines in roles
        )
    )
    call(["describe", "--data", str(path), "--test", "0.4"], monkeypatch)
    said = [line.strip() for line in capsys.readouterr().out.splitlines()]
    assert "left out  no training rows: 1" in said
    assert "examples  sequences of 80, uint8" in said
    assert "train rows  3" in said
    assert "test rows  2" in said
    assert "rows per client  min: 3, 10%: 3, 25%: 3, 50%: 3, 75%: 3, 90%: 3, max: 3" in said


@pytest.mark.parametrize("terminal", [True, False])
def test_fetch_shows_a_bar_for_each_file_on_a_terminal_only(
    terminal: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fetch(name: str, progress: Progress) -> Path:
        progress("one.sqlite", 5, 10)
        progress("one.sqlite", 10, 10)
        progress("two.sqlite", 7, None)
        return Path("/cache") / name

    shown = io.StringIO()
    monkeypatch.setattr(commands, "ERR", Console(file=shown, force_terminal=terminal, width=100))
    monkeypatch.setattr(data, "fetch", fetch)
    call(["fetch", "femnist"], monkeypatch)
    assert capsys.readouterr().out == "femnist: /cache/femnist\n"
    assert ("one.sqlite" in shown.getvalue()) == ("two.sqlite" in shown.getvalue()) == terminal
