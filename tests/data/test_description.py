import json

import numpy as np
import pytest
from scipy import sparse

from scafflix.data import describe, from_arrays, from_clients, synthetic


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
