"""What holds for every value: files give back what was written, keys what was set."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from formats import npy_bytes, npz_bytes, parquet_bytes
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from wire import LAYOUT, samples

from scafflix.core.errors import MOST_LETTERS, ScafflixError
from scafflix.data import Federation, from_arrays, load
from scafflix.data.identity import fault_of_id
from scafflix.federate.messages import Fault, fault_of
from scafflix.federate.wire import pack, unpack
from scafflix.runs.config import CompareConfig, RunConfig, TuneConfig, build, plain, read

TRIALS = settings(deadline=None, max_examples=60)
NUMBERS = st.floats(allow_nan=False, allow_infinity=False, allow_subnormal=False, width=64)
MATRICES = arrays.arrays(
    np.float64, st.tuples(st.integers(1, 6), st.integers(1, 4)), elements=NUMBERS
)
KINDS = st.sampled_from((RunConfig, CompareConfig, TuneConfig))
SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20)
VALUES: Any = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=8,
)


@contextmanager
def written(name: str, content: bytes) -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, name)
        path.write_bytes(content)
        yield path


def dense(fed: Federation) -> np.ndarray[Any, Any]:
    features = fed.train.features
    return features if isinstance(features, np.ndarray) else features.toarray()


def check_same(fed: Federation, matrix: np.ndarray[Any, Any]) -> None:
    np.testing.assert_array_equal(dense(fed), matrix)
    np.testing.assert_array_equal(fed.train.labels, np.arange(len(matrix)))


@given(MATRICES)
@TRIALS
def test_svmlight_gives_back_what_was_written(matrix: np.ndarray[Any, Any]) -> None:
    lines = [
        " ".join([str(row), *(f"{k}:{float(value)!r}" for k, value in enumerate(values, 1))])
        for row, values in enumerate(matrix)
    ]
    with written("a.txt", "\n".join(lines).encode()) as path:
        check_same(load(path, clients=1, features=matrix.shape[1]), matrix)


@given(MATRICES)
@TRIALS
def test_csv_gives_back_what_was_written(matrix: np.ndarray[Any, Any]) -> None:
    names = [f"c{k}" for k in range(matrix.shape[1])]
    lines = [",".join([*names, "y"])]
    for row, values in enumerate(matrix):
        lines.append(",".join([*(repr(float(value)) for value in values), str(row)]))
    with written("a.csv", "\n".join(lines).encode()) as path:
        check_same(load(path, clients=1, scale="none", intercept=False), matrix)


@given(MATRICES)
@TRIALS
def test_parquet_and_npz_give_back_what_was_written(matrix: np.ndarray[Any, Any]) -> None:
    labels = np.arange(len(matrix))
    table = {f"c{k}": column for k, column in enumerate(matrix.T)} | {"y": labels}
    with written("a.parquet", parquet_bytes(table)) as path:
        check_same(load(path, clients=1, scale="none", intercept=False), matrix)
    archive = npz_bytes({"x.npy": npy_bytes(matrix), "y.npy": npy_bytes(labels)})
    with written("a.npz", archive) as path:
        check_same(load(path, clients=1), matrix)


@given(st.lists(st.text(max_size=210), min_size=1, max_size=5))
@TRIALS
def test_ids_become_clients_or_are_refused_for_a_reason(ids: list[str]) -> None:
    given_ids = np.array(ids)
    spelt = given_ids.tolist()  # as NumPy keeps them
    rows = np.ones((len(ids), 1))
    try:
        fed = from_arrays(rows, np.zeros(len(ids)), given_ids)
    except ScafflixError:
        assert any(fault_of_id(client) for client in spelt)
    else:
        assert fed.clients == tuple(dict.fromkeys(spelt))


@given(KINDS, st.data())
@TRIALS
def test_any_value_of_any_key_is_taken_or_refused(kind: type[Any], draw: st.DataObject) -> None:
    name = draw.draw(st.sampled_from(list(kind.__dataclass_fields__)))
    values = {"data": "digits", name: draw.draw(VALUES)}
    refusal = name
    try:
        config = build(kind, values)
    except ScafflixError as error:
        refusal = str(error)
    else:
        assert repr(build(kind, plain(config))) == repr(config)
    assert refusal.isprintable()
    assert name in refusal


@given(KINDS, st.lists(st.text(max_size=30), max_size=4))
@TRIALS
def test_any_words_set_keys_or_are_refused(kind: type[Any], words: list[str]) -> None:
    try:
        read(kind, None, {}, words)
    except ScafflixError as error:
        refusal = str(error)
    else:
        refusal = "."
        assert any(word.partition("=")[0].strip() == "data" for word in words)
    assert refusal.isprintable()


@given(st.text(max_size=2000))
@TRIALS
def test_a_sentence_is_one_short_line_whatever_is_quoted(text: str) -> None:
    sentence = str(ScafflixError(f"The file {text} is empty."))
    assert sentence.isprintable()
    # an unprintable character takes up to ten letters
    assert len(sentence) <= 10 * MOST_LETTERS
    if text.isprintable() and len(text) < MOST_LETTERS // 2:
        assert sentence == f"The file {text} is empty."


@pytest.mark.parametrize("message", samples(), ids=lambda m: type(m).__name__)
def test_a_message_survives_the_wire(message: Any) -> None:
    arrived = unpack(pack(message))
    assert type(arrived) is type(message)
    for sent, got in zip(message, arrived, strict=True):
        if isinstance(sent, tuple):
            for a, b in zip(sent, got, strict=True):
                np.testing.assert_array_equal(a, b)
        else:
            assert got == sent
    assert fault_of(arrived, LAYOUT) is None


@given(st.sampled_from(samples()), st.data())
@TRIALS
def test_any_value_in_a_message_is_judged(message: Any, draw: st.DataObject) -> None:
    field = draw.draw(st.sampled_from(message._fields))
    changed = message._replace(**{field: draw.draw(VALUES)})
    found = fault_of(changed, LAYOUT)
    assert found is None or isinstance(found, Fault)
