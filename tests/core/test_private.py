"""Private files are their owner's from the first moment, whatever the umask."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import scafflix as sx
from permissions import generous, open_to_others
from scafflix.core import durable, private
from scafflix.core.checkpoint import Checkpoints, Often
from scafflix.runs.config import RunConfig
from scafflix.runs.runner import Runner


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


@pytest.mark.parametrize("how", ["wb", "xb", "ab", "w"])
def test_a_file_is_made_private_and_not_made_private_afterwards(
    how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "fchmod", lambda *_: None)
    with generous(), private.open_file(tmp_path / "h", how):
        assert mode(tmp_path / "h") == 0o600


def test_a_file_that_was_open_to_others_is_closed_before_more_is_written(tmp_path: Path) -> None:
    with generous():
        (tmp_path / "rounds.jsonl").touch()
        durable.append(tmp_path / "rounds.jsonl", "{}")
    assert mode(tmp_path / "rounds.jsonl") == 0o600


def test_folders_that_are_made_are_private_and_those_that_were_there_stay(tmp_path: Path) -> None:
    with generous():
        (tmp_path / "mine").mkdir(mode=0o755)
        private.make_folder(tmp_path / "mine" / "a" / "b")
        private.make_folder(tmp_path / "mine")
    modes = [mode(tmp_path / name) for name in ("mine", "mine/a", "mine/a/b")]
    assert modes == [0o755, 0o700, 0o700]


def test_a_file_in_the_place_of_a_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a").touch()
    with pytest.raises(sx.ScafflixError, match="a cannot be written"):
        durable.new_folder(tmp_path / "a")


def test_a_network_on_disk_leaves_nothing_private_open_at_any_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Caches, stores, journals, checkpoints and models, looked at whenever progress is told."""
    monkeypatch.setenv("SCAFFLIX_CACHE", str(tmp_path / "cache"))
    options = {"clients": 3, "split": "shuffled", "validation": 0.2, "test": 0.2}
    federation = sx.data.load("iris", **options)
    problem = sx.Problem(federation, sx.models.dense(features=4, classes=3))
    settings = {"rounds": 4, "batch": 4, "store": "disk", "optima": "warm", "warmup": 2}
    settings |= {"optima_batch": 4, "optima_steps": 10, "optima_stepsize": 0.1, "alpha": 0.5}
    config = RunConfig(data="iris", model="dense", **settings)
    seen: set[str] = set()
    found: set[str] = set()

    def look(*_: object) -> None:
        found.update(open_to_others(tmp_path))
        seen.update(path.suffix for path in tmp_path.rglob("*"))

    with generous():
        checkpoints = Checkpoints(tmp_path / "run" / "checkpoint", Often(rounds=1))
        Runner(problem, checkpoints).run(config, look).save(tmp_path / "run" / "record")
        Runner(problem).run(config, look)  # its states in the cache
    look()
    assert {".rows", ".undo", ".safetensors", ".json"} <= seen
    assert found == set()
    assert mode(tmp_path / "run" / "record" / "models.safetensors") == 0o600
    assert mode(tmp_path / "run" / "record" / "metrics.jsonl") == 0o666  # as the umask has it
