"""Checkpoints: what is in them, what happens when they are damaged, and what is refused."""

from __future__ import annotations

import errno
import os
import signal
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from crashes import CONVEX, NETWORK, CrashError, content, run

from scafflix.cli import main
from scafflix.core import durable
from scafflix.core import store as stores
from scafflix.core.checkpoint import Checkpoints, Often
from scafflix.core.durable import DamagedError
from scafflix.core.errors import DivergenceError, ScafflixError, ScafflixWarning
from scafflix.core.store import Store
from scafflix.runs import workfolder

ON_DISK = {**NETWORK, "store": "disk"}
KINDS = pytest.mark.parametrize(
    "settings", [CONVEX, NETWORK, ON_DISK], ids=["convex", "memory", "disk"]
)


@pytest.fixture(autouse=True, scope="module")
def _own_cache(tmp_path_factory: pytest.TempPathFactory) -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SCAFFLIX_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


def crashed(settings: dict[str, Any], folder: Path, crash: int = 10) -> list[Path]:
    """A run that crashed, and its checkpoints, the oldest first."""
    with pytest.raises(CrashError):
        run(settings, folder, crash)
    return sorted(folder.rglob("[0-9]*.safetensors"))


def flip(file: Path, place: int) -> None:
    broken = bytearray(file.read_bytes())
    broken[place] ^= 4
    file.write_bytes(broken)


# what is kept


@KINDS
def test_the_two_newest_are_kept(settings: dict[str, Any], tmp_path: Path) -> None:
    files = crashed(settings, tmp_path, 11)
    assert [int(file.stem) for file in files] == [4, 8]


@KINDS
def test_a_run_of_which_only_the_end_is_kept_ends_the_same(
    settings: dict[str, Any], tmp_path: Path
) -> None:
    whole = content(run(settings, tmp_path / "checkpoints"), tmp_path / "whole")
    (last,) = (tmp_path / "checkpoints").rglob(f"[0-9]*{durable.SUFFIX}")
    assert int(last.stem) == settings["rounds"]
    assert content(run(settings, tmp_path / "checkpoints"), tmp_path / "again") == whole


def test_a_checkpoint_is_due_by_the_clock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr("scafflix.core.checkpoint.time.monotonic", lambda: now[0])
    trail = Checkpoints(tmp_path, Often(minutes=2)).trail({})
    assert not trail.due(5)
    now[0] = 121.0
    assert trail.due(5)
    trail.save(5, {}, ())
    assert not trail.due(6)


# damage


@KINDS
@pytest.mark.parametrize("place", [3, 40, -1])
def test_a_flipped_bit_falls_back_to_the_checkpoint_before_and_says_so(
    settings: dict[str, Any], place: int, tmp_path: Path
) -> None:
    whole = content(run(settings), tmp_path / "whole")
    flip(crashed(settings, tmp_path / "checkpoints")[-1], place)
    with pytest.warns(ScafflixWarning, match=r"damaged.* Going on from the checkpoint before it"):
        resumed = run(settings, tmp_path / "checkpoints")
    assert content(resumed, tmp_path / "resumed") == whole


@KINDS
def test_without_a_whole_checkpoint_it_starts_over_and_says_so(
    settings: dict[str, Any], tmp_path: Path
) -> None:
    whole = content(run(settings), tmp_path / "whole")
    for file in crashed(settings, tmp_path / "checkpoints"):
        file.write_bytes(file.read_bytes()[:-3])
    with (
        pytest.warns(ScafflixWarning, match="Starting over"),
        pytest.warns(ScafflixWarning, match="Going on from the checkpoint before it"),
    ):
        resumed = run(settings, tmp_path / "checkpoints")
    assert content(resumed, tmp_path / "resumed") == whole


@pytest.mark.parametrize("name", ["*.undo", "states.rows", "states.json"])
@pytest.mark.parametrize("damage", ["flipped", "truncated", "removed"])
def test_damage_to_the_files_of_a_store_never_changes_the_result(
    name: str, damage: str, tmp_path: Path
) -> None:
    whole = content(run(ON_DISK), tmp_path / "whole")
    crashed(ON_DISK, tmp_path / "checkpoints")
    file = max((tmp_path / "checkpoints").rglob(name))
    if damage == "flipped":
        flip(file, file.stat().st_size // 2)
    elif damage == "truncated":
        file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])
    else:
        file.unlink()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ScafflixWarning)  # none for what the journal puts back
        resumed = run(ON_DISK, tmp_path / "checkpoints")
    assert content(resumed, tmp_path / "resumed") == whole


# a store that is written in place


def rows(store: Store) -> Any:
    return store.read(np.arange(store.clients))


@pytest.mark.parametrize("writes", range(7))
def test_a_crash_between_two_writes_of_a_round_is_undone(
    writes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    template = np.zeros(5, np.float32)
    random = np.random.default_rng(0)
    store = Store(template, 6, tmp_path / "s.f32", fresh=True)

    def play(*cohorts: list[int]) -> None:
        for clients in cohorts:
            values = random.normal(size=(len(clients), 5)).astype(np.float32)
            store.write(np.array(clients), values)

    play([0, 1, 2, 3, 4, 5])
    at_checkpoint, kept = rows(store).copy(), store.snapshot().copy()
    store.protect(tmp_path / "0.undo")
    play([1, 3])
    left = [writes]
    write = stores._write_all

    def limited(*arguments: Any) -> None:
        if not left[0]:
            raise CrashError
        left[0] -= 1
        write(*arguments)

    monkeypatch.setattr(stores, "_write_all", limited)
    with pytest.raises(CrashError):
        play([3, 5], [0, 4, 2], [0, 1, 2])
    monkeypatch.undo()
    found = Store(template, 6, tmp_path / "s.f32")
    found.restore(kept, [tmp_path / "0.undo"])
    np.testing.assert_array_equal(rows(found), at_checkpoint)


def test_a_row_that_no_journal_puts_back_is_damage(tmp_path: Path) -> None:
    store = Store(np.zeros(5, np.float32), 6, tmp_path / "s.f32", fresh=True)
    store.write(np.arange(6), np.ones((6, 5), np.float32))
    kept = store.snapshot().copy()
    flip(tmp_path / "s.f32", 2 * store.width * 4)
    with pytest.raises(DamagedError, match="its row 2 does not match"):
        Store(np.zeros(5, np.float32), 6, tmp_path / "s.f32").restore(kept)


# what is refused


@KINDS
def test_checkpoints_of_other_data_are_refused_by_name(
    settings: dict[str, Any], tmp_path: Path
) -> None:
    table = tmp_path / "table.csv"
    lines = [f"{k % 7},{k % 5},{k % 3}" for k in range(90)]
    table.write_text("\n".join(["a,b,label", *lines]))
    asked = {**settings, "data": str(table), "label": "label"}
    crashed(asked, tmp_path / "checkpoints")
    table.write_text("\n".join(["a,b,label", *reversed(lines)]))
    with pytest.raises(ScafflixError, match=r"is of something else: its digest of .* is \w+, here"):
        run(asked, tmp_path / "checkpoints")


def asked(**changes: Any) -> workfolder.Asked:
    return workfolder.Asked("run", {"config": {"data": "iris", "rounds": 50, **changes}}, "/")


def fail_after_a_checkpoint(folder: Path, error: BaseException) -> None:
    with workfolder.begin(asked(), folder) as work:
        work.checkpoints.within("a").trail({}).save(1, {}, ())
        raise error


def leave_unfinished(folder: Path) -> None:
    with pytest.raises(CrashError):
        fail_after_a_checkpoint(folder, CrashError())


def test_another_configuration_is_refused_by_name(tmp_path: Path) -> None:
    leave_unfinished(tmp_path)
    for changes, words in (({"rounds": 60}, "rounds is 50, here it is 60"),
                           ({"model": "dense"}, "model is None, here it is dense")):  # fmt: skip
        with (
            pytest.raises(ScafflixError, match=words),
            workfolder.begin(asked(**changes), tmp_path),
        ):
            pass


def test_another_version_is_refused_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    leave_unfinished(tmp_path)
    found = {**workfolder.versions(), "scafflix": "9.9"}
    monkeypatch.setattr(workfolder, "versions", lambda: found)
    with (
        pytest.raises(ScafflixError, match=r"scafflix is \S+, here it is 9\.9"),
        workfolder.begin(asked(), tmp_path),
    ):
        pass


def test_two_processes_do_not_share_a_folder(tmp_path: Path) -> None:
    with (
        workfolder.begin(asked(), tmp_path / "out"),
        pytest.raises(ScafflixError, match="is in use by another process"),
        workfolder.begin(asked(), tmp_path / "out"),
    ):
        pass


def test_a_folder_called_checkpoint_of_someone_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "checkpoint").mkdir()
    (tmp_path / "checkpoint" / "thesis.txt").write_text("years of work")
    with (
        pytest.raises(ScafflixError, match="choose another folder"),
        workfolder.begin(asked(), tmp_path, force=True),
    ):
        pass
    assert (tmp_path / "checkpoint" / "thesis.txt").exists()


@pytest.mark.parametrize("given", [Often(rounds=0), Often(minutes=0)])
def test_a_schedule_that_makes_no_sense_is_refused(given: Often, tmp_path: Path) -> None:
    with (
        pytest.raises(ScafflixError, match="checkpoint-"),
        workfolder.begin(asked()._replace(often=given), tmp_path / "out"),
    ):
        pass


# disks


@KINDS
@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS])
def test_a_full_or_read_only_disk_stops_the_run_and_loses_nothing(
    settings: dict[str, Any], number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = content(run(settings), tmp_path / "whole")
    fsync, calls = os.fsync, [0]

    def full(descriptor: int) -> None:
        calls[0] += 1
        if calls[0] == 9:
            raise OSError(number, os.strerror(number))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(ScafflixError, match=os.strerror(number)):
        run(settings, tmp_path / "checkpoints", every=1)
    monkeypatch.undo()
    assert content(run(settings, tmp_path / "checkpoints"), tmp_path / "resumed") == whole


# divergence


def test_a_convex_run_that_diverges_names_round_client_stage_and_checkpoint(
    tmp_path: Path,
) -> None:
    wild = {**CONVEX, "model": "linear", "stepsize": 1e6, "rounds": 200}
    words = r"objective of client client-\d is not finite after round \d+, when its models"
    with (
        pytest.warns(ScafflixWarning, match="is above"),
        pytest.raises(DivergenceError, match=words),
    ):
        run(wild, tmp_path / "checkpoints", every=5)
    with pytest.raises(DivergenceError, match=r"diverged\. \S+1\.safetensors is the last good"):
        fail_after_a_checkpoint(tmp_path / "out", DivergenceError("It diverged.", 3))


# signals, on the command line

WORDS = {
    "convex": "run --data iris --clients 3 --split shuffled --model softmax --alpha 0.5 --rounds 40"
    " --checkpoint-rounds 30",
    "network": "run --data iris --clients 3 --split shuffled --scale standard --model dense"
    " --alpha 0.5 --rounds 12 --batch 4 --cohort 2 --optima-stepsize 0.1 --optima-steps 10"
    " --store disk --checkpoint-rounds 10",
}


def call(words: str, monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(sys, "argv", ["scafflix", *words.split()])
    with pytest.raises(SystemExit) as stop:
        main()
    return int(stop.value.code or 0)


@pytest.mark.parametrize("kind", WORDS)
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_waits_for_the_round_and_says_how_to_resume(
    kind: str,
    number: signal.Signals,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert call(f"{WORDS[kind]} --out whole", monkeypatch) == 0
    seen: list[int] = []
    due = Checkpoints.trail

    def trail(self: Checkpoints, *arguments: Any) -> Any:
        made = due(self, *arguments)
        ask = made.due

        def send(done: int, **named: Any) -> bool:
            if done >= 5 and not seen:
                seen.append(done)
                os.kill(os.getpid(), number)
            return ask(done, **named)

        made.due = send
        return made

    monkeypatch.setattr(Checkpoints, "trail", trail)
    assert call(f"{WORDS[kind]} --out out", monkeypatch) == 128 + number
    assert seen
    monkeypatch.setattr(Checkpoints, "trail", due)
    assert capsys.readouterr().err.endswith("stopped: continue with: scafflix resume out\n")
    (kept,) = Path("out/checkpoint").rglob("[0-9]*.safetensors")
    assert int(kept.stem) == seen[0]
    assert call("resume out", monkeypatch) == 0
    assert not Path("out/checkpoint").exists()
    assert content(tmp_path / "out", tmp_path) == content(tmp_path / "whole", tmp_path)
    assert call("resume out", monkeypatch) == 2
    assert "out is finished: there is nothing to resume" in capsys.readouterr().err


def test_there_is_nothing_to_resume_where_nothing_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(f"resume {tmp_path / 'absent'}", monkeypatch) == 2
    assert "There is no folder" in capsys.readouterr().err
    assert call(f"resume {tmp_path}", monkeypatch) == 2
    assert "is empty: there is nothing to resume" in capsys.readouterr().err


def test_a_damaged_note_is_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    leave_unfinished(tmp_path)
    flip(tmp_path / "checkpoint" / workfolder.NOTE, -2)
    assert call(f"resume {tmp_path}", monkeypatch) == 2
    assert "is damaged" in capsys.readouterr().err
