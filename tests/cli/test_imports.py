"""What a command does not need, it does not import."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import scafflix as sx

SCRIPT = """
import contextlib, io, json, sys
from scafflix.cli import main
sys.argv = ["scafflix", *{words!r}]
with contextlib.redirect_stdout(io.StringIO()):
    try:
        main()
    except SystemExit as end:
        assert not end.code, end.code
print(json.dumps(sorted(sys.modules)))
"""
DRAWING, TRAINING = {"matplotlib"}, {"jax", "scafflix.simulate.loop", "scafflix.simulate.round"}


def imported(*words: str, **environment: str) -> set[str]:
    """The modules that a command has loaded when it ends."""
    script = SCRIPT.format(words=words)
    ran = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        env={**os.environ, **environment},
    )
    assert ran.returncode == 0, ran.stderr
    return set(json.loads(ran.stdout))


@pytest.mark.parametrize("words", [("--help",), ("run", "--help"), ("data", "list")])
def test_help_and_lists_load_neither_numbers_nor_pictures(
    words: tuple[str, ...], miniatures: Path
) -> None:
    found = imported(*words, SCAFFLIX_DATA=str(miniatures))
    assert not found & {*DRAWING, *TRAINING, "numpy", "scipy", "sklearn", "pyarrow"}


def test_a_report_loads_nothing_that_trains_or_draws(tmp_path: Path) -> None:
    problem = sx.Problem(sx.data.synthetic(clients=3, seed=0), sx.models.logistic(), l2=0.1)
    person = sx.personalize(problem, alpha=0.5)
    sx.run(problem, person, sx.gd(sx.plan(problem, person)), rounds=2).save(tmp_path / "run")
    found = imported("report", str(tmp_path / "run"), "--out", str(tmp_path / "page.html"))
    assert (tmp_path / "page.html").exists()
    assert not found & {*DRAWING, *TRAINING, "scipy", "sklearn"}


def test_bundled_data_do_not_load_scikit_learn() -> None:
    assert "sklearn" not in imported("data", "describe", "--data", "digits", "--clients", "3")


def test_every_public_name_is_there_and_completed() -> None:
    for package in (sx, sx.data):
        assert {*package.__all__} <= {*dir(package)}
        for name in package.__all__:
            assert getattr(package, name) is not None
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        _ = sx.nothing  # type: ignore[attr-defined]


def test_a_name_that_is_also_a_modules_stays_the_function() -> None:
    script = "import scafflix as sx; sx.run; sx.data; print(callable(sx.personalize))"
    words = [sys.executable, "-c", script]
    assert subprocess.run(words, capture_output=True, text=True, check=True).stdout == "True\n"
