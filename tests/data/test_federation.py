import numpy as np
import pytest
from scipy import sparse

from scafflix.data import Examples, Federation, from_clients
from scafflix.errors import ScafflixError


def three_clients() -> Federation:
    return from_clients(
        {
            "a": ([[1.0], [2.0]], [0, 1]),
            "b": ([[3.0]], [1]),
            "c": ([[4.0], [5.0], [6.0]], [0, 0, 1]),
        },
        held_out={"c": ([[7.0]], [1])},
    )


def test_taking_clients_keeps_their_rows_in_the_order_asked_for() -> None:
    taken = three_clients().take([2, 0])
    assert taken.clients == ("c", "a")
    assert taken.train.features.ravel().tolist() == [4.0, 5.0, 6.0, 1.0, 2.0]
    assert taken.train.offsets.tolist() == [0, 3, 5]


def test_taking_clients_takes_their_test_rows_too() -> None:
    test = three_clients().take(np.array([1, 2])).test
    assert test is not None
    assert test.features.ravel().tolist() == [7.0]
    assert test.offsets.tolist() == [0, 0, 1]


def test_taking_clients_works_on_sparse_features() -> None:
    examples = Examples(sparse.csr_array(np.eye(3)), np.arange(3), np.array([0, 1, 3]))
    assert examples.take([1]).features.toarray().tolist() == [[0, 1, 0], [0, 0, 1]]


def test_owners_names_the_client_of_each_row() -> None:
    assert three_clients().train.owners.tolist() == [0, 0, 1, 2, 2, 2]


@pytest.mark.parametrize("client", [-1, 3])
def test_taking_a_client_that_does_not_exist_is_refused(client: int) -> None:
    with pytest.raises(ScafflixError, match=rf"no client {client} in 'clients'.* 0 to 2"):
        three_clients().take([client])


def test_taking_no_clients_is_refused() -> None:
    with pytest.raises(ScafflixError, match="no clients"):
        three_clients().take([])


def test_labels_that_do_not_match_the_rows_are_refused() -> None:
    with pytest.raises(ScafflixError, match=r"2 rows of features but labels of shape \(3,\)"):
        Examples(np.ones((2, 1)), np.ones(3), np.array([0, 2]))


@pytest.mark.parametrize("offsets", [[0, 1], [1, 2], [0, 2, 1, 2]])
def test_offsets_that_do_not_rise_to_the_number_of_rows_are_refused(offsets: list[int]) -> None:
    with pytest.raises(ScafflixError, match="must rise from 0 to 2"):
        Examples(np.ones((2, 1)), np.ones(2), np.array(offsets))


def test_a_number_of_names_that_does_not_match_the_examples_is_refused() -> None:
    examples = Examples(np.ones((2, 1)), np.ones(2), np.array([0, 2]))
    with pytest.raises(ScafflixError, match="has 2 clients but examples of 1"):
        Federation("f", ("a", "b"), examples)


def test_test_features_of_another_dimension_are_refused() -> None:
    train = Examples(np.ones((2, 1)), np.ones(2), np.array([0, 2]))
    test = Examples(np.ones((2, 3)), np.ones(2), np.array([0, 2]))
    with pytest.raises(ScafflixError, match="1 training features but 3 test features"):
        Federation("f", ("a",), train, test)
