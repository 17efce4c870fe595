"""Files hold the old content or the new, and say so when they hold neither."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from scafflix import ScafflixError
from scafflix.core import durable

ARRAYS = (np.arange(6.0).reshape(2, 3), np.ones(2, np.float32), np.zeros((0, 4)))


def test_what_was_written_is_read_again(tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    assert durable.read(path) is None
    durable.write(path, {"round": 3, "pending": None}, ARRAYS)
    found = durable.read(path)
    assert found is not None
    assert found[0] == {"round": 3, "pending": None}
    for mine, theirs in zip(found[1], ARRAYS, strict=True):
        assert mine.dtype == theirs.dtype
        np.testing.assert_array_equal(mine, theirs)


def test_a_file_is_plain_safetensors(tmp_path: Path) -> None:
    durable.write(tmp_path / "a.safetensors", {}, ARRAYS)
    assert len(load_file(tmp_path / "a.safetensors")) == 3


@pytest.mark.parametrize("moment", ["before", "aside", "after"])
def test_a_crash_leaves_the_old_content_or_the_new(tmp_path: Path, moment: str) -> None:
    path = tmp_path / "a.safetensors"
    durable.write(path, {"version": 1}, ARRAYS)

    def crash(now: str) -> None:
        if now.startswith(moment):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        durable.write(path, {"version": 2}, ARRAYS, crash)
    found = durable.read(path)
    assert found is not None
    assert found[0]["version"] == (2 if moment == "after" else 1)


def test_any_damage_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    durable.write(path, {"round": 3}, ARRAYS)
    whole = path.read_bytes()
    for place in range(0, len(whole), 7):
        broken = bytearray(whole)
        broken[place] ^= 4
        path.write_bytes(broken)
        with pytest.raises(ScafflixError, match="damaged"):
            durable.read(path)
    for size in (0, 5, 40, len(whole) - 1):
        path.write_bytes(whole[:size])
        with pytest.raises(ScafflixError, match="damaged"):
            durable.read(path)


def test_a_folder_is_one_process_s_at_a_time(tmp_path: Path) -> None:
    def second() -> None:
        with durable.locked(tmp_path, patience=0.1):
            pass

    with durable.locked(tmp_path), pytest.raises(ScafflixError, match="in use by another"):
        second()
    second()


def test_a_folder_that_cannot_be_written_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(ScafflixError, match="cannot be written"):
        durable.write(tmp_path / "absent" / "a.safetensors", {}, ARRAYS)


WRITER = """
import sys
from pathlib import Path
import numpy as np
from scafflix.core import durable
path, me = Path(sys.argv[1]), int(sys.argv[2])
for number in range(int(sys.argv[3])):
    durable.write(path, {"writer": me, "number": number}, [np.full(5000 * (me + 1), me)])
"""
WRITES = 1000  # of each process


def test_two_processes_write_one_path_without_a_failure_or_a_torn_read(tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    words = [sys.executable, "-c", WRITER, str(path)]
    writers = [
        subprocess.Popen([*words, str(me), str(WRITES)], stderr=subprocess.PIPE, text=True)
        for me in range(2)
    ]
    seen = set()
    while any(writer.poll() is None for writer in writers):
        found = durable.read(path)
        if found is not None:
            facts, (array,) = found
            assert array.tolist() == [facts["writer"]] * 5000 * (facts["writer"] + 1)
            seen.add((facts["writer"], facts["number"]))
    assert [writer.communicate()[1] for writer in writers] == ["", ""]
    assert [writer.returncode for writer in writers] == [0, 0]
    assert {writer for writer, _ in seen} == {0, 1}
    assert list(tmp_path.iterdir()) == [path]


def test_a_write_that_fails_leaves_nothing_aside(tmp_path: Path) -> None:
    def content() -> Iterator[bytes]:
        yield b"half"
        raise OSError(28, "No space left on device")

    with pytest.raises(ScafflixError, match=r"a\.json cannot be written: No space left"):
        durable.put(tmp_path / "a.json", content())
    assert list(tmp_path.iterdir()) == []


def test_what_a_killed_writer_left_is_removed_and_a_living_one_s_is_not(tmp_path: Path) -> None:
    path, killed = tmp_path / "a.json", tmp_path / ".a.json.0123.part"
    killed.write_bytes(b"half of a model")
    other = tmp_path / ".b.json.0123.part"
    other.write_bytes(b"of another file")
    with durable.replacing(path) as file:
        file.write(b"first")
        durable.put(path, [b"second"])
        assert not killed.exists()
    assert path.read_bytes() == b"first"
    assert set(tmp_path.iterdir()) == {path, other}


def test_named_arrays_come_back_in_their_order(tmp_path: Path) -> None:
    path, names = tmp_path / "a.safetensors", ["z", "b.weight", "a"]
    durable.write(path, {}, ARRAYS, names=names)
    assert set(load_file(path)) == set(names)
    found = durable.read(path)
    assert found is not None
    assert [array.shape for array in found[1]] == [array.shape for array in ARRAYS]
