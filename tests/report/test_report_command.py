"""`scafflix report` and `scafflix track`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import made
import pytest
import typer.testing

from scafflix.cli import app
from scafflix.core.errors import ScafflixError


def call(*words: str) -> str:
    done = typer.testing.CliRunner().invoke(app, list(words))
    if done.exception:
        raise done.exception
    return done.output


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    """A folder that holds two runs, as a comparison does, and one of a run itself."""
    for alpha in (1.0, 0.5):
        made.numbers(alpha=alpha).save(tmp_path / "both" / "runs" / f"alpha-{alpha}")
    made.deployment().save(tmp_path / "alone")
    return tmp_path


def test_a_page_is_made_of_folders_of_runs_and_of_folders_that_hold_them(runs: Path) -> None:
    out = runs / "page.html"
    printed = call("report", str(runs / "both"), str(runs / "alone"), "-o", str(out))
    assert f"report: {out}" in printed
    text = out.read_text()
    assert "<h1>Runs on hospitals, writers</h1>" in text or "Runs on writers, hospitals" in text
    assert "writers: logistic model with 640 parameters, 30 clients; 2 runs." in text
    assert "hospitals: logistic model with 14 parameters, 4 clients; 1 run." in text


def test_the_target_of_the_page_is_counted_in_its_tables(runs: Path) -> None:
    out = runs / "page.html"
    call("report", str(runs / "both"), "-o", str(out), "--target", "0.01", "--title", "Mine")
    assert "Rounds and megabytes until the objective gap is 0.01" in out.read_text()
    assert "<h1>Mine</h1>" in out.read_text()


def test_the_terminal_says_what_was_chosen_and_who_is_worse_off_than_alone(runs: Path) -> None:
    for data in ("writers", "speakers"):
        made.chosen(data=data).save(runs / "both" / data)
    printed = call("report", str(runs / "both"), "-o", str(runs / "page.html"))
    hurt = made.chosen().summary["taking_part"]["personal"]["hurt"]
    rows = [line.split() for line in printed.splitlines()]
    for data in ("writers", "speakers"):
        assert [data, "scafflix", "auto", "loo"] in [row[:4] for row in rows]
        assert [data, "scafflix", "auto", str(hurt), "of", "30"] in [row[:6] for row in rows]
    assert not [row for row in rows if "0.5" in row[:3]]  # a run that knows neither


def test_a_folder_without_runs_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ScafflixError, match="does not hold a run"):
        call("report", str(tmp_path))


@pytest.mark.parametrize("target", ["0", "nan", "-1"])
def test_a_target_that_no_gap_can_have_is_refused(runs: Path, target: str) -> None:
    with pytest.raises(ScafflixError, match="finite number above 0"):
        call("report", str(runs / "both"), "-o", str(runs / "page.html"), "--target", target)


def test_a_damaged_run_is_named(runs: Path) -> None:
    (runs / "alone" / "metrics.jsonl").write_text("{")
    with pytest.raises(ScafflixError, match="alone does not hold a readable run"):
        call("report", str(runs / "alone"))


def test_a_page_that_cannot_be_written_is_refused(runs: Path) -> None:
    with pytest.raises(ScafflixError, match="cannot be written"):
        call("report", str(runs / "alone"), "-o", str(runs / "alone"))


def test_runs_are_tracked_under_the_names_of_their_folders(runs: Path) -> None:
    call("track", str(runs / "both"), "--to", "tensorboard", "--where", str(runs / "board"))
    names = sorted(path.name for path in (runs / "board").iterdir())
    assert names == ["both-runs-alpha-0.5", "both-runs-alpha-1.0"]


def test_a_record_of_newcomers_has_nothing_to_report(tmp_path: Path) -> None:
    one = made.numbers(alpha=1.0)
    without = {name: one.metrics[name][:1] for name in ("round", "iterations", "local_steps")}
    replace(one, metrics=without, summary={**one.summary, "rounds": 0}).save(tmp_path / "new")
    with pytest.raises(ScafflixError, match="A record of newcomers has no rounds to report"):
        call("report", str(tmp_path / "new"), "--out", str(tmp_path / "page.html"))
