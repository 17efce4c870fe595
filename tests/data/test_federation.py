import numpy as np
import pytest
from scipy import sparse

from scafflix.core.errors import ScafflixError
from scafflix.data import Examples, Federation, from_clients


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
    with pytest.raises(ScafflixError, match=r"shape \(1,\) but test .* \(3,\)"):
        Federation("f", ("a",), train, test)


def images_and_sequences() -> tuple[Examples, Examples]:
    images = np.arange(12, dtype=np.uint8).reshape(3, 2, 2)
    sequences = np.array([[1, 2], [3, 0], [4, 5]], np.uint8)
    labels = np.array([[2, 9], [9, -1], [5, 9]], np.int8)
    offsets = np.array([0, 1, 3])
    return Examples(images, np.arange(3), offsets), Examples(sequences, labels, offsets)


def test_images_stay_bytes_when_clients_are_taken() -> None:
    images, _ = images_and_sequences()
    fed = Federation("f", ("a", "b"), images)
    taken = fed.take([1]).train
    assert (taken.features.shape, taken.features.dtype) == ((2, 2, 2), np.uint8)
    assert fed.dim == 4


def test_a_sequence_has_a_label_for_each_place() -> None:
    _, sequences = images_and_sequences()
    taken = Federation("f", ("a", "b"), sequences).take([1])
    assert taken.train.labels.tolist() == [[9, -1], [5, 9]]


@pytest.mark.parametrize("shape", [(), (3, 1), (2, 2, 2)])
def test_labels_of_a_shape_without_meaning_are_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(ScafflixError, match="2 rows of features but labels of shape"):
        Examples(np.ones((2, 1)), np.ones(shape), np.array([0, 2]))


def test_validation_rows_are_taken_with_their_clients() -> None:
    images, _ = images_and_sequences()
    fed = Federation("f", ("a", "b"), images, validation=images, left_out={"c": "too small"})
    taken = fed.take([1])
    assert taken.validation is not None
    assert taken.validation.features.tolist() == images.features[1:].tolist()
    assert list(taken.parts) == ["train", "validation"]
    assert taken.left_out == {"c": "too small"}


def test_validation_examples_of_another_kind_are_refused() -> None:
    images, sequences = images_and_sequences()
    with pytest.raises(ScafflixError, match=r"shape \(2, 2\) but validation .* shape \(2,\)"):
        Federation("f", ("a", "b"), images, validation=sequences)


def test_labels_of_another_length_are_refused() -> None:
    _, sequences = images_and_sequences()
    single = Examples(sequences.features, np.arange(3), sequences.offsets)
    with pytest.raises(ScafflixError, match=r"labels of shape \(2,\) but test labels .* \(\)"):
        Federation("f", ("a", "b"), sequences, single)


def test_validation_examples_of_other_clients_are_refused() -> None:
    images, _ = images_and_sequences()
    with pytest.raises(ScafflixError, match="has 2 clients but examples of 1"):
        Federation("f", ("a", "b"), images, validation=images.take([0]))
