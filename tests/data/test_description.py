import json

import numpy as np
import pytest
from scipy import sparse

from scafflix.data import Examples, Federation, describe, from_arrays, from_clients, synthetic


def test_sizes_count_training_and_test_rows() -> None:
    facts = describe(from_arrays(np.ones((10, 3)), np.arange(10) % 2, [0] * 4 + [1] * 6, test=0.5))
    assert (facts["rows"], facts["train_rows"], facts["test_rows"]) == (10, 5, 5)
    assert (facts["clients"], facts["features"]) == (2, 3)
    assert (facts["smallest_client"], facts["largest_client"]) == (("0", 2), ("1", 3))


def test_stored_zeros_do_not_count_as_nonzero() -> None:
    matrix = sparse.csr_array(([1.0, 0.0], [0, 1], [0, 2]), shape=(1, 4))
    assert describe(from_arrays(matrix, [0], 1))["nonzero_share"] == 0.25


def test_whole_numbers_stored_as_floats_are_named_briefly() -> None:
    assert describe(from_arrays([[1.0]] * 3, [1.0, 2.0, 2.0], 1))["label_counts"] == {
        "1": 1,
        "2": 2,
    }


def test_alike_clients_have_no_label_heterogeneity() -> None:
    fed = from_clients({i: ([[1.0]] * 4, [0, 1, 1, 1]) for i in range(3)})
    assert describe(fed)["label_heterogeneity"] == 0.0


def test_clients_with_labels_of_their_own_are_as_heterogeneous_as_can_be() -> None:
    fed = from_clients({i: ([[1.0]], [i]) for i in range(10)})
    assert describe(fed)["label_heterogeneity"] == pytest.approx(0.9)


def test_numbers_to_predict_are_not_counted_as_classes() -> None:
    facts = describe(synthetic(task="linear"))
    assert facts["label_counts"] is None
    assert facts["label_heterogeneity"] is None


def test_a_description_can_be_written_as_json() -> None:
    facts = describe(from_arrays(np.ones((4, 1)), np.array([True, False] * 2), 2))
    assert json.loads(json.dumps(facts))["label_counts"] == {"False": 2, "True": 2}


def test_images_are_described_by_their_shape() -> None:
    images = np.zeros((4, 28, 28), np.uint8)
    fed = Federation("f", ("a",), Examples(images, np.array([0, 1, 1, 61]), np.array([0, 4])))
    facts = describe(fed)
    assert facts["examples"] == "28 x 28 images, uint8"
    assert (facts["classes"], facts["features"]) == (3, 784)


def test_labels_of_sequences_are_counted_by_place_without_padding() -> None:
    codes = np.array([[1, 5, 5], [1, 6, 0]], np.uint8)
    labels = np.array([[5, 5, 2], [6, 2, -1]], np.int8)
    facts = describe(Federation("f", ("a", "b"), Examples(codes, labels, np.array([0, 1, 2]))))
    assert facts["examples"] == "sequences of 3, uint8"
    assert facts["label_counts"] == {"2": 2, "5": 2, "6": 1}
    # shares 1/3, 2/3, 0 and 1/2, 0, 1/2 against 2/5, 2/5, 1/5
    assert facts["label_heterogeneity"] == pytest.approx((4 / 15 + 4 / 10) / 2)


def test_vectors_are_described_by_their_layout() -> None:
    assert describe(synthetic(features=5))["examples"] == "vectors of 5, float64"
    facts = describe(from_arrays(sparse.csr_array(np.eye(4)), [0, 1, 0, 1], 1))
    assert facts["examples"] == "sparse vectors of 4, float64"


def test_clients_left_out_are_counted_by_reason() -> None:
    ids = ["a"] * 10 + ["b"] * 3 + ["c", "d"]
    fed = from_arrays(np.ones((15, 1)), np.ones(15), ids, test=0.15, min_examples=2)
    assert describe(fed)["left_out"] == {"fewer than 2 training rows": 2, "no test rows": 1}


def test_rows_per_client_are_percentiles_of_the_training_rows() -> None:
    ids = [i for i in range(11) for _ in range(i + 1)]
    facts = describe(from_arrays(np.ones((66, 1)), np.ones(66), ids))
    assert list(facts["rows_per_client"].values()) == [1, 2, 3, 6, 8, 10, 11]
    assert list(facts["rows_per_client"]) == ["min", "10%", "25%", "50%", "75%", "90%", "max"]


def test_the_three_parts_are_counted_apart() -> None:
    facts = describe(from_arrays(np.ones((20, 1)), np.ones(20), 1, test=0.2, validation=0.25))
    counts = (facts["train_rows"], facts["validation_rows"], facts["test_rows"])
    assert (counts, facts["rows"]) == ((12, 4, 4), 20)
