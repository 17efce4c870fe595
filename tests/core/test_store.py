from __future__ import annotations

import errno
import os
import resource
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

import miniature
from scafflix.core.errors import ScafflixError
from scafflix.core.store import Store
from scafflix.simulate.cohorts import train
from scafflix.simulate.schedule import Schedule

TEMPLATE = {"w": np.zeros((2, 3), np.float32), "b": np.zeros(4, np.float32)}


def tree(clients: int, seed: int = 0) -> dict[str, Any]:
    random = np.random.default_rng(seed)
    return {
        name: random.normal(size=(clients, *leaf.shape)).astype(np.float32)
        for name, leaf in TEMPLATE.items()
    }


@pytest.fixture(params=["memory", "file"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    return Store(TEMPLATE, 6, tmp_path / "s.f32" if request.param == "file" else None)


def test_a_store_is_zero_at_first(store: Store) -> None:
    assert all((leaf == 0).all() for leaf in store.read(np.arange(6)).values())


def test_a_store_gives_back_what_was_written(store: Store) -> None:
    written = tree(3)
    store.write(np.array([4, 0, 2]), written)
    found = store.read(np.array([2, 4, 0]))
    for name in TEMPLATE:
        np.testing.assert_array_equal(found[name], written[name][[2, 0, 1]])


def test_writing_some_clients_leaves_the_others_alone(store: Store) -> None:
    store.write(np.arange(6), tree(6))
    store.write(np.array([3]), tree(1, seed=1))
    found = store.read(np.array([0, 1, 2, 4, 5]))
    for name in TEMPLATE:
        np.testing.assert_array_equal(found[name], tree(6)[name][[0, 1, 2, 4, 5]])


def test_what_was_read_does_not_change_with_a_later_writing(store: Store) -> None:
    store.write(np.arange(6), tree(6))
    before = store.read(np.array([1]))
    kept = {name: leaf.copy() for name, leaf in before.items()}
    store.write(np.array([1]), tree(1, seed=2))
    for name in TEMPLATE:
        np.testing.assert_array_equal(before[name], kept[name])


def test_a_store_keeps_the_structure_of_the_template() -> None:
    class Pair(NamedTuple):
        h: Any
        e: Any

    store = Store(Pair(TEMPLATE, np.zeros(2, np.float32)), 3)
    assert isinstance(store.read(np.array([0])), Pair)


def test_a_file_opened_again_has_its_content(tmp_path: Path) -> None:
    first = Store(TEMPLATE, 6, tmp_path / "s.f32")
    first.write(np.arange(6), tree(6))
    first.close()
    again = Store(TEMPLATE, 6, tmp_path / "s.f32").read(np.arange(6))
    for name in TEMPLATE:
        np.testing.assert_array_equal(again[name], tree(6)[name])


def test_a_store_for_other_clients_is_refused_naming_both(tmp_path: Path) -> None:
    Store(TEMPLATE, 6, tmp_path / "s.f32").close()
    with pytest.raises(ScafflixError, match=r"holds 6 clients .* but 7 clients .* asked for"):
        Store(TEMPLATE, 7, tmp_path / "s.f32")


def test_a_store_of_another_model_is_refused_naming_both(tmp_path: Path) -> None:
    Store(TEMPLATE, 6, tmp_path / "s.f32").close()
    with pytest.raises(ScafflixError, match=r"arrays of 4, 2x3, but .* arrays of 4 are"):
        Store({"b": TEMPLATE["b"]}, 6, tmp_path / "s.f32")


def test_a_file_that_was_cut_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "s.f32"
    Store(TEMPLATE, 6, file).close()
    os.truncate(file, 17)
    with pytest.raises(ScafflixError, match="cut short"):
        Store(TEMPLATE, 6, file)


def test_a_file_that_is_gone_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "s.f32"
    Store(TEMPLATE, 6, file).close()
    file.unlink()
    with pytest.raises(ScafflixError, match="cut short"):
        Store(TEMPLATE, 6, file)


def test_a_file_cut_while_it_is_open_is_one_sentence(tmp_path: Path) -> None:
    store = Store(TEMPLATE, 6, tmp_path / "s.f32")
    os.truncate(tmp_path / "s.f32", 17)
    with pytest.raises(ScafflixError, match="ends too early"):
        store.read(np.array([5]))


@pytest.mark.parametrize("note", ["{", "[1, 2]", '{"clients": 6}'])
def test_a_note_that_is_no_note_is_refused(tmp_path: Path, note: str) -> None:
    Store(TEMPLATE, 6, tmp_path / "s.f32").close()
    (tmp_path / "s.json").write_text(note)
    with pytest.raises(ScafflixError, match="does not"):
        Store(TEMPLATE, 6, tmp_path / "s.f32")


@pytest.mark.parametrize("other", [np.float16, np.int32, np.float64])
def test_parameters_of_other_or_of_several_types_are_refused(other: Any) -> None:
    with pytest.raises(ScafflixError, match=f"must be all float32 or .* {np.dtype(other)}"):
        Store({"b": np.zeros(2, np.float32), "w": np.zeros(3, other)}, 2)


def test_a_store_has_the_type_of_its_template(tmp_path: Path) -> None:
    store = Store({"w": np.zeros(3)}, 2, tmp_path / "s.rows")
    store.write(np.array([1]), {"w": np.full((1, 3), 1 / 3)})
    store.close()
    again = Store({"w": np.zeros(3)}, 2, tmp_path / "s.rows").read(np.array([1]))["w"]
    assert again.dtype == np.float64
    assert (again == 1 / 3).all()


def test_a_store_of_another_type_is_refused(tmp_path: Path) -> None:
    Store({"w": np.zeros(3)}, 2, tmp_path / "s.rows").close()
    with pytest.raises(ScafflixError, match="does not match the model"):
        Store({"w": np.zeros(3, np.float32)}, 2, tmp_path / "s.rows")


def test_too_little_space_is_said_before_anything_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=100))
    with pytest.raises(ScafflixError, match=r"6 clients takes 0\.0 GB in .* are free"):
        Store(TEMPLATE, 6, tmp_path / "s.f32")
    assert not any(tmp_path.glob("s.*"))


def test_a_file_that_may_not_grow_is_one_sentence_and_leaves_nothing(tmp_path: Path) -> None:
    script = f"""
import resource, signal
import numpy as np
from pathlib import Path
from scafflix.core.store import Store
from scafflix.core.errors import ScafflixError
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
try:
    Store({{"w": np.zeros(1000, np.float32)}}, 50, Path({str(tmp_path)!r}) / "s.f32")
except ScafflixError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert "s.f32 cannot be used: File too large." in done.stdout, done.stderr
    assert len(done.stdout.splitlines()) == 1
    assert not any(tmp_path.glob("s.*"))


def test_a_folder_that_cannot_be_made_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("")
    with pytest.raises(ScafflixError, match="cannot be used"):
        Store(TEMPLATE, 6, tmp_path / "taken" / "s.f32")


def test_a_disk_that_fills_up_in_a_run_is_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    small, alpha = miniature.problem(), np.ones(miniature.N)
    chosen = miniature.method("scafflix", alpha, miniature.GAMMA)
    schedule = Schedule(rounds=3, cohort=3, store=tmp_path / "s.f32")
    monkeypatch.setattr(os, "pwrite", full)
    with pytest.raises(ScafflixError, match=r"cannot be used: No space left on device\.$"):
        train(small, miniature.person(small, alpha, None), chosen, small.start(0), schedule)


def test_a_disk_that_fails_to_sync_is_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(_: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    store = Store(TEMPLATE, 6, tmp_path / "s.f32")
    monkeypatch.setattr(os, "fsync", broken)
    with pytest.raises(ScafflixError, match="cannot be used"):
        store.sync()


def test_reading_every_row_of_a_large_file_does_not_stay_in_memory(tmp_path: Path) -> None:
    def resident() -> int:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        return pages * resource.getpagesize()

    clients, numbers = 64, 2**18  # a row is a megabyte
    store = Store({"w": np.zeros(numbers, np.float32)}, clients, tmp_path / "s.f32")
    store.read(np.array([0]))
    before = resident()
    for client in range(clients):
        store.read(np.array([client]))
    assert resident() - before < store.bytes / 4


def test_a_run_on_disk_makes_the_same_numbers_as_one_in_memory(tmp_path: Path) -> None:
    small, alpha = miniature.problem(), np.ones(miniature.N)
    chosen = miniature.method("scafflix", alpha, miniature.GAMMA)
    made = [
        miniature.run(small, chosen, alpha, None, rounds=4, cohort=3, store=file)
        for file in (None, tmp_path / "s.f32")
    ]
    np.testing.assert_array_equal(*(miniature.flat(one.x) for one in made))
    np.testing.assert_array_equal(*(miniature.controls(one, chosen, alpha) for one in made))


def test_a_run_begins_with_zeros_whatever_a_stopped_one_left_in_the_file(tmp_path: Path) -> None:
    def stop(done: int, *_: object) -> None:
        if done == 2:
            raise KeyboardInterrupt

    small, alpha = miniature.problem(), np.ones(miniature.N)
    chosen = miniature.method("scafflix", alpha, miniature.GAMMA)
    schedule = Schedule(rounds=4, cohort=3, store=tmp_path / "s.f32")
    whole = miniature.run(small, chosen, alpha, None, rounds=4, cohort=3)
    everyone, start = miniature.person(small, alpha, None), small.start(0)
    with pytest.raises(KeyboardInterrupt):
        train(small, everyone, chosen, start, schedule, progress=stop)
    again = train(small, everyone, chosen, start, schedule)
    np.testing.assert_array_equal(miniature.flat(again.x), miniature.flat(whole.x))
