from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from scafflix.core.errors import ScafflixError
from scafflix.data import from_arrays, from_clients


def test_ids_become_clients_in_order_of_first_appearance() -> None:
    fed = from_arrays(np.arange(5.0)[:, None], np.arange(5), ["z", "a", "z", "m", "a"])
    assert fed.clients == ("z", "a", "m")
    assert fed.train.labels.tolist() == [0, 2, 1, 4, 3]
    assert fed.train.offsets.tolist() == [0, 2, 4, 5]


@given(st.lists(st.integers(-3, 3), min_size=1, max_size=40))
@settings(deadline=None)
def test_every_row_ends_with_the_client_that_its_id_names(ids: list[int]) -> None:
    fed = from_arrays(np.arange(len(ids))[:, None], ids, ids)
    assert [fed.clients[i] for i in fed.train.owners] == [str(y) for y in fed.train.labels]
    assert sorted(fed.train.features[:, 0]) == list(range(len(ids)))
    for start, end in zip(fed.train.offsets, fed.train.offsets[1:], strict=False):
        assert (np.diff(fed.train.features[start:end, 0]) > 0).all()


@pytest.mark.parametrize(
    ("ids", "names"),
    [
        (np.array([7, 3]), ("7", "3")),
        (np.array([7.0, 2.5]), ("7", "2.5")),
        (np.array([True, False]), ("True", "False")),
        (np.array([b"x", b"y"]), ("x", "y")),
        (np.array(["x", "y"], dtype=object), ("x", "y")),
    ],
)
def test_ids_of_any_plain_type_become_text(ids: Any, names: tuple[str, ...]) -> None:
    assert from_arrays([[1.0], [2.0]], [0, 1], ids).clients == names


def test_sparse_features_stay_sparse() -> None:
    fed = from_arrays(sparse.coo_matrix(np.eye(4)), np.arange(4), [0, 1, 0, 1])
    assert isinstance(fed.train.features, sparse.csr_array)
    assert fed.train.features.toarray().tolist() == np.eye(4)[[0, 2, 1, 3]].tolist()


def test_duplicate_sparse_entries_are_added_without_touching_the_caller() -> None:
    matrix = sparse.csr_array(([1.0, 2.0], [0, 0], [0, 2]), shape=(1, 1))
    fed = from_arrays(matrix, [0], 1)
    assert fed.train.features.toarray().tolist() == [[3.0]]
    assert matrix.data.tolist() == [1.0, 2.0]


def test_changing_the_callers_array_afterwards_does_not_change_the_federation() -> None:
    features = np.ones((2, 1))
    fed = from_arrays(features, [0, 1], 2)
    features[:] = 5.0
    assert fed.train.features.tolist() == [[1.0], [1.0]]


def test_labels_stay_as_they_were_found() -> None:
    assert from_arrays([[1.0]], np.array([3], dtype=np.uint8), 1).train.labels.dtype == np.uint8
    assert from_arrays([[1.0]], ["cat"], 1).train.labels.tolist() == ["cat"]


@pytest.mark.parametrize(
    ("features", "message"),
    [
        ([1.0, 2.0], r"shape \(2,\); reshape"),
        (np.ones((2, 2, 2)), r"shape \(2, 2, 2\); reshape"),
        ([[1.0], [2.0, 3.0]], "not a rectangular array"),
        (np.ones((0, 3)), "0 rows of 3 features"),
        (np.ones((3, 0)), "3 rows of 0 features"),
        ([[1 + 2j]], "complex128; give real numbers"),
        (np.array([[None]]), "object; give real numbers"),
        ([["a"]], "give real numbers"),
        ([[1.0, 2.0], [3.0, np.nan]], r"row 1, column 1 \(from 0\) is nan"),
        ([[1.0, -np.inf]], r"row 0, column 1 \(from 0\) is -inf"),
        (sparse.csr_array([[0.0, 1.0], [0.0, np.inf]]), "row 1, column 1"),
        (sparse.csr_array([[1j]]), "complex128; give real numbers"),
        (sparse.coo_array(np.ones(3)), "1 dimensions"),
        (sparse.csr_array((0, 3)), "0 rows of 3 features"),
    ],
)
def test_features_that_are_no_finite_real_matrix_are_refused(features: Any, message: str) -> None:
    with pytest.raises(ScafflixError, match=message):
        from_arrays(features, [0, 1], 1)


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ([0], "1 for 2 rows"),
        ([[0], [1]], r"shape \(2, 1\)"),
        ([0.0, np.nan], r"row 1 \(from 0\) is nan"),
        ([0, 1j], "complex128"),
        ([None, 1], "object"),
        (np.array(["2020-01-01"] * 2, dtype="datetime64[D]"), "datetime64"),
        ([b"\xff", b"a"], "not UTF-8"),
        ([[1], [1, 2]], "not a rectangular array"),
    ],
)
def test_labels_that_are_no_plain_column_are_refused(labels: Any, message: str) -> None:
    with pytest.raises(ScafflixError, match=f"labels.*{message}"):
        from_arrays([[1.0], [2.0]], labels, 1)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: from_arrays([[1.0]], [0], 0), "clients is 0"),
        (lambda: from_arrays([[1.0]], [0], True), "clients is True"),
        (lambda: from_arrays([[1.0]], [0], 1.5), "clients is 1.5"),
        (lambda: from_arrays([[1.0]], [0], 2), "clients is 2, but there are only 1 rows"),
        (lambda: from_arrays([[1.0]], [0], ["a", "b"]), "clients: 2 for 1 rows"),
        (lambda: from_arrays([[1.0]], [0], [np.nan]), "clients: row 0"),
        (lambda: from_arrays([[1.0]], [0], ["a"], split="shuffled"), "give one of them"),
        (lambda: from_arrays([[1.0]], [0], 1, split="column:a"), "no named columns"),
        (lambda: from_arrays([[1.0]], [0], 1, seed=-1), "seed is -1"),
        (lambda: from_arrays([[1.0]], [0], 1, test=1.0), "test is 1.0.* below 1"),
        (lambda: from_arrays([[1.0]], [0], 1, scale="max"), "scale is 'max'"),
    ],
)
def test_arguments_that_make_no_sense_are_refused(call: Callable[[], object], message: str) -> None:
    with pytest.raises(ScafflixError, match=message):
        call()


def test_clients_with_sparse_and_dense_features_become_sparse_together() -> None:
    fed = from_clients({"a": (sparse.eye_array(2), [0, 1]), "b": ([[5.0, 0.0]], [1])})
    assert fed.train.features.toarray().tolist() == [[1, 0], [0, 1], [5, 0]]


@pytest.mark.parametrize(
    ("examples", "message"),
    [
        ({}, "has no clients"),
        ({"a": (np.ones((0, 2)), [])}, "Client 'a', features: 0 rows"),
        ({"a": ([[1.0]], [0]), "b": ([[1.0, 2.0]], [0])}, "Client 'b' has 2 features, but .*'a'"),
        ({"a": ([[1.0]], [0]), "b": ([[1.0]], ["x"])}, "Client 'b' has labels of type"),
        ({1: ([[1.0]], [0]), "1": ([[1.0]], [0])}, "2 clients '1'"),
        ({"a": ([[np.nan]], [0])}, "Client 'a', features: row 0"),
        ({"a": ([[1.0]], [0, 1])}, "Client 'a', labels: 2 for 1 rows"),
        ({"a": 3}, "Client 'a': give a pair"),
    ],
)
def test_clients_with_unfit_examples_are_refused_by_name(examples: Any, message: str) -> None:
    with pytest.raises(ScafflixError, match=message):
        from_clients(examples)


def test_held_out_examples_of_a_stranger_are_refused() -> None:
    with pytest.raises(ScafflixError, match="Client 'b' has held-out examples but no training"):
        from_clients({"a": ([[1.0]], [0])}, held_out={"b": ([[1.0]], [0])})
