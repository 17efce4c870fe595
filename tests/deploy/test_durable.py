"""Files hold the old content or the new, and say so when they hold neither."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from scafflix import ScafflixError, durable

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
