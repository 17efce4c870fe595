"""How commands speak: bars on a terminal, lines elsewhere, JSON for scripts, nothing when quiet."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from rich.console import Console

from scafflix.cli import display, main
from scafflix.core.progress import Standing
from scafflix.report.table import Table

WORDS = "run --data iris --model softmax --clients 3 --split shuffled --rounds 5"
RUN = WORDS.split()


@pytest.fixture(autouse=True)
def speaking_as_usual() -> Iterator[None]:
    display.MANNER.clear()
    yield
    display.MANNER.clear()


def call(monkeypatch: pytest.MonkeyPatch, *words: str) -> int:
    monkeypatch.setattr(sys, "argv", ["scafflix", *words])
    with pytest.raises(SystemExit) as ended:
        main()
    return int(ended.value.code or 0)


def test_json_is_one_object_with_the_results(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert call(monkeypatch, *RUN, "--out", str(tmp_path / "r"), "--json") == 0
    said = json.loads(capsys.readouterr().out)
    assert said["files"] == {"record": str(tmp_path / "r")}
    assert said["facts"]["Run"]["rounds"] == 5


def test_a_wide_table_is_whole_where_no_terminal_bounds_it(
    capsys: pytest.CaptureFixture[str],
) -> None:
    names, values = [f"column {k}" for k in range(20)], [f"{k} ± 0.01" for k in range(20)]
    display.show(Table("Wide", ("", *names), [("row", *values)]))
    printed = capsys.readouterr().out
    assert all(word in printed for word in names + values)


def test_json_holds_the_recommendation_with_its_interval(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    out = tmp_path / "r"
    assert call(monkeypatch, *RUN, "--test", "0.3", "--out", str(out), "--json") == 0
    said = json.loads(capsys.readouterr().out)
    kept = json.loads((out / "summary.json").read_text())
    assert said["taken_home"] == kept["taken_home"]
    low, high = kept["taken_home"]["interval"]
    assert f"(95 % interval {100 * low:.1f} to {100 * high:.1f})" in said["conclusion"]


def test_a_run_with_a_test_part_ends_with_two_sentences(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert call(monkeypatch, *RUN, "--test", "0.3", "--out", str(tmp_path / "r")) == 0
    first, second = capsys.readouterr().out.splitlines()[-2:]
    assert first.startswith("The models that clients take home have a test accuracy of ")
    assert second.startswith("By test loss, ")
    assert call(monkeypatch, *RUN, "--out", str(tmp_path / "s")) == 0
    assert capsys.readouterr().out.splitlines()[-1] == f"record: {tmp_path / 's'}"


def test_json_holds_the_error_too(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(monkeypatch, *RUN, "--alpha", "2", "--json") == 2
    out, err = capsys.readouterr()
    assert "between 0" in json.loads(out)["error"]
    assert "between 0" in err


def test_quiet_prints_nothing_but_errors(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert call(monkeypatch, *RUN, "--out", str(tmp_path / "r"), "--quiet") == 0
    assert capsys.readouterr() == ("", "")
    assert call(monkeypatch, *RUN, "--out", str(tmp_path / "r"), "--quiet") == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert "is not empty" in err


def test_a_log_gets_a_line_now_and_then(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    clock = iter([0.0, 4.0, 11.0, 12.0, 30.0])
    monkeypatch.setattr(display.time, "monotonic", lambda: next(clock))
    with display.progress("scafflix") as (report,):
        for done in range(1, 5):
            report(done, 4, Standing({"gap": 10.0**-done}, bits=done * 8_000_000, steps=100 * done))
    lines = capsys.readouterr().err.splitlines()
    assert lines == [
        "scafflix: 2/4, gap 0.01, 2 MB, 14.3 client-steps/s, 11 s",
        "scafflix: 4/4, gap 0.0001, 4 MB, 11.5 client-steps/s, 30 s",
    ]


def test_a_terminal_shows_stage_round_value_traffic_and_time_left(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    screen = Console(file=io.StringIO(), force_terminal=True, width=140, markup=False)
    monkeypatch.setattr(display, "ERR", screen)
    with display.progress("scafflix") as (report,):
        report(3, 45, "local optima")
        report(9, 45, Standing({"gap": 0.02}, bits=8_000_000, steps=10))
    shown = screen.file.getvalue()
    assert "scafflix" in shown
    assert "9/45 gap 0.02, 1 MB" in shown
    assert "left" in shown


def test_the_shell_completes_commands() -> None:
    variables = {
        **os.environ,
        "_SCAFFLIX_COMPLETE": "complete_bash",
        "COMP_WORDS": "scafflix re",
        "COMP_CWORD": "1",
    }
    program = [sys.executable, "-c", "import sys; sys.argv[0] = 'scafflix'; "
               "from scafflix.cli import main; main()"]  # fmt: skip
    made = subprocess.run(program, env=variables, capture_output=True, text=True, timeout=120)
    assert {"reproduce", "resume", "report"} <= set(made.stdout.split())
