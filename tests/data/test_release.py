import sqlite3
import zlib
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import msgpack
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scafflix.core.errors import ScafflixError
from scafflix.data import load
from scafflix.data.release import read_client, unpack, unpack_array
from scafflix.data.text import decode

TABLE = (
    "CREATE TABLE federated_data (client_id BLOB NOT NULL PRIMARY KEY, data BLOB NOT NULL, "
    "num_examples INTEGER NOT NULL)"
)


def numbers(array: np.ndarray[Any, Any]) -> msgpack.ExtType:
    parts = (array.shape, array.dtype.name, array.tobytes())
    return msgpack.ExtType(1, msgpack.packb(parts, use_bin_type=True))


def texts(*snippets: bytes) -> msgpack.ExtType:
    return msgpack.ExtType(4, msgpack.packb(((len(snippets),), list(snippets))))


def images(count: int, share: float = 0.2, label: int = 3) -> bytes:
    return packed(
        pixels=numbers(np.full((count, 28, 28), share, np.float32)),
        label=numbers(np.full(count, label, np.int32)),
    )


def packed(**arrays: Any) -> bytes:
    return zlib.compress(msgpack.packb(arrays))


def database(path: Path, *rows: tuple[object, object, object]) -> Path:
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(TABLE)
        connection.executemany("INSERT INTO federated_data VALUES (?, ?, ?)", rows)
    return path


def test_images_become_bytes_with_white_255(tmp_path: Path) -> None:
    path = database(tmp_path / "e.sqlite", (b"z", images(2), 2), (b"a", images(1, 1.0, 61), 1))
    fed = load(path)
    assert fed.clients == ("z", "a")  # the order of the file
    assert fed.train.features.shape == (3, 28, 28)
    assert (fed.train.features.dtype, fed.train.labels.dtype) == (np.uint8, np.int8)
    assert fed.train.features[:, 3, 3].tolist() == [51, 51, 255]
    assert fed.train.labels.tolist() == [3, 3, 61]
    assert fed.test is None


def test_snippets_become_sequences_each_on_its_own(tmp_path: Path) -> None:
    data = packed(snippets=texts(b"To be, or not to be", b"x" * 100))
    fed = load(database(tmp_path / "s.sqlite", (b"Hamlet", data, 2)))
    assert fed.train.features.shape == fed.train.labels.shape == (3, 80)
    assert decode(fed.train.labels[0]) == "To be, or not to be"
    assert decode(fed.train.labels[1:]) == "x" * 100


@pytest.mark.parametrize("source", ["", "emnist_train.sqlite"])
def test_a_folder_or_a_training_file_goes_with_its_test_file(tmp_path: Path, source: str) -> None:
    database(tmp_path / "emnist_train.sqlite", (b"a", images(3), 3), (b"b", images(1), 1))
    database(tmp_path / "emnist_test.sqlite", (b"c", images(1), 1), (b"a", images(2), 2))
    fed = load(tmp_path / source)
    assert fed.test is not None
    assert (fed.clients, fed.test.counts.tolist()) == (("a", "b"), [2, 0])
    assert fed.left_out == {"c": "no training rows"}
    with pytest.raises(ScafflixError, match="brings a test part"):
        load(tmp_path / source, test=0.2)


def test_a_file_without_a_partner_has_its_test_part_drawn(tmp_path: Path) -> None:
    fed = load(database(tmp_path / "own_train.sqlite", (b"a", images(10), 10)), test=0.3)
    assert fed.test is not None
    assert fed.test.counts.tolist() == [3]


def test_several_training_files_in_a_folder_are_refused(tmp_path: Path) -> None:
    for name in ("emnist_train.sqlite", "emnist_digitsonly_train.sqlite"):
        database(tmp_path / name, (b"a", images(1), 1))
    with pytest.raises(ScafflixError, match=r"several training files \(emnist_digitsonly_tr"):
        load(tmp_path)


def test_reading_leaves_no_file_behind(tmp_path: Path) -> None:
    load(database(tmp_path / "e.sqlite", (b"a", images(1), 1)))
    assert [path.name for path in tmp_path.iterdir()] == ["e.sqlite"]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (images(2), "num_examples is 1, but there are 2 examples"),
        (images(1, label=62), r"label 0 \(from 0\) is 62; give whole numbers from 0 to 61"),
        (images(1, share=1.5), "has a pixel 1.5"),
        ("text", "its data are not bytes"),
        (b"garbage", r"its data are not zlib \("),
        (images(1)[:-10], "its data are cut short"),
        (zlib.compress(b"\xc1"), r"its data are not msgpack arrays \("),
        (zlib.compress(b"\x91" * 100_000), r"its data are not msgpack arrays \("),
        (zlib.compress(msgpack.packb([1])), "its data are not a map of arrays"),
        (packed(), "the arrays are none; they must be 'pixels' and 'label', or 'snippets'"),
        (packed(pixels=3, label=4), "the arrays are none"),
        (packed(pixels=msgpack.ExtType(2, b"")), "an extension of type 2"),
        (packed(pixels=msgpack.ExtType(1, b"")), "not msgpack arrays"),
        (packed(pixels=msgpack.ExtType(1, msgpack.packb(3))), "not msgpack arrays"),
        (packed(snippets=numbers(np.ones(1, np.int32))), "'snippets' does not hold texts"),
        (
            packed(
                pixels=numbers(np.ones((1, 27, 28), np.float32)),
                label=numbers(np.ones(1, np.int32)),
            ),
            r"images of shape \(27, 28\); give 784 pixels",
        ),
        (
            packed(
                pixels=numbers(np.ones((1, 28, 28), np.int32)),
                label=numbers(np.ones(1, np.int32)),
            ),
            "'pixels' of type int32",
        ),
        (
            packed(
                pixels=numbers(np.ones((1, 28, 28), np.float32)),
                label=numbers(np.ones(2, np.int32)),
            ),
            r"1 images but labels of shape \(2,\)",
        ),
        (
            packed(
                pixels=numbers(np.ones((1, 28, 28), np.float32)),
                label=texts(b"a"),
            ),
            "labels of type object",
        ),
    ],
)
def test_faulty_data_are_refused_with_their_client(
    tmp_path: Path, data: object, message: str
) -> None:
    where = r"e\.sqlite, client 'f0001_00': .*"
    with pytest.raises(ScafflixError, match=where + message) as caught:
        load(database(tmp_path / "e.sqlite", (b"f0001_00", data, 1)))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "content",
    [
        ((10**9, 10**9), "float32", b"1234"),
        ((-1,), "float32", b""),
        ((1,), "object", b"12345678"),
        ((1,), "bfloat16", b"12"),
        ((1,), "float32", b"12345"),
        (3, "float32", b"1234"),
    ],
)
def test_an_array_that_is_not_what_it_says_takes_no_memory(content: tuple[Any, ...]) -> None:
    with pytest.raises(ValueError, match="an array of"):
        unpack_array(1, msgpack.packb(content))


@pytest.mark.parametrize("content", [((2,), [b"a"]), ((1,), [1]), ((1, 1), [b"a"]), ((1,), 3)])
def test_texts_that_are_not_what_they_say_are_refused(content: tuple[Any, ...]) -> None:
    with pytest.raises(ValueError, match="texts"):
        unpack_array(4, msgpack.packb(content))


def test_data_that_would_fill_the_memory_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("scafflix.data.release.CLIENT_LIMIT", 10_000)
    with pytest.raises(ScafflixError, match="client 'a': its data exceed 10000 bytes"):
        load(database(tmp_path / "e.sqlite", (b"a", images(100), 100)))


def test_clients_that_together_would_fill_the_memory_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("scafflix.data.parts.SIZE_LIMIT", 1000)
    with pytest.raises(ScafflixError, match="more than 1000 bytes"):
        load(database(tmp_path / "e.sqlite", (b"a", images(1), 1), (b"b", images(1), 1)))


def no_table(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE other (a)")


def other_columns(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE federated_data (a)")


def broken_off(path: Path) -> None:
    database(path, *((f"c{i}".encode(), np.random.default_rng(i).bytes(5000), 1) for i in range(9)))
    path.write_bytes(path.read_bytes()[:20_000])


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (no_table, "there is no table federated_data"),
        (other_columns, "no such column"),
        (broken_off, "not a readable SQLite release"),
        (lambda path: path.write_bytes(b"garbage" * 1000), "not a readable SQLite release"),
        (lambda path: path.write_bytes(b""), "there is no table federated_data"),
        (lambda path: database(path), "has no clients"),
    ],
)
def test_a_file_that_is_no_release_is_refused(
    tmp_path: Path, make: Callable[[Path], object], message: str
) -> None:
    path = tmp_path / "e.sqlite"
    make(path)
    with pytest.raises(ScafflixError, match=message) as caught:
        load(path)
    assert "e.sqlite" in str(caught.value)


@given(st.data())
@settings(deadline=None, max_examples=300)
def test_damaged_data_are_refused_with_one_sentence_or_read(draw: st.DataObject) -> None:
    good = draw.draw(st.sampled_from([images(1), packed(snippets=texts(b"a", b"bc"))]))
    damaged = bytearray(zlib.decompress(good))
    for _ in range(draw.draw(st.integers(1, 4))):
        place = draw.draw(st.integers(0, min(len(damaged) - 1, 60)))
        damaged[place] = draw.draw(st.integers(0, 255))
    try:
        examples = read_client(unpack(zlib.compress(damaged), "here"), 1, "here")
    except ScafflixError as error:
        sentence = str(error)
    else:
        sentence = ""
        assert len(examples[0]) == len(examples[1])
    assert "\n" not in sentence


def test_odd_bytes_that_sqlite_quotes_are_refused(tmp_path: Path) -> None:
    path = database(tmp_path / "e.sqlite", (b"a", images(1), 1))
    content = path.read_bytes().replace(b"CREATE TABLE", b"CREATE TABLX")
    path.write_bytes(content.replace(b"tablefederated_data", b"tablefed\x97rated_data"))
    with pytest.raises(ScafflixError, match=r"e\.sqlite: not a readable .*'utf-8' codec"):
        load(path)
