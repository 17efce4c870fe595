from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import scafflix as sx
from scafflix import ScafflixError

torch = pytest.importorskip("torch")


class Squares(torch.utils.data.Dataset):  # type: ignore[misc,name-defined]
    """Pairs that are made when they are asked for."""

    def __init__(self, rows: int = 6, fault: str = "") -> None:
        self.rows, self.fault = rows, fault

    def __len__(self) -> int:
        return self.rows

    def __getitem__(self, row: int) -> Any:
        if self.fault == "raises" and row == 3:
            raise OSError("the disk is gone")
        if self.fault == "alone":
            return torch.zeros(2)
        size = 3 if self.fault == "ragged" and row == 3 else 2
        return torch.full((size, size), row, dtype=torch.uint8), row % 2


OWNERS = ["b", "a", "b", "a", "b", "b"]


def test_examples_go_to_their_owners_as_they_are() -> None:
    fed = sx.data.from_torch(Squares(), OWNERS, held_out=(Squares(2), ["a", "b"]))
    assert fed.clients == ("b", "a")
    assert fed.train.features.dtype == np.uint8
    assert fed.train.features[:, 0, 0].tolist() == [0, 2, 4, 5, 1, 3]
    assert fed.train.labels.tolist() == [0, 0, 0, 1, 1, 1]
    assert fed.test is not None
    assert fed.test.features[:, 0, 0].tolist() == [1, 0]


def test_a_tensor_data_set_is_the_same_as_its_pairs() -> None:
    tensors = torch.utils.data.TensorDataset(torch.randn(6, 3), torch.arange(6))
    pairs = [tensors[row] for row in range(6)]
    for given in (tensors, pairs):
        fed = sx.data.from_torch(given, OWNERS, validation=0.2)
        np.testing.assert_array_equal(
            np.sort(np.concatenate([part.labels for part in fed.parts.values()])), np.arange(6)
        )
        assert fed.train.features.dtype == np.float32


@pytest.mark.parametrize(
    ("dataset", "owners", "message"),
    [
        (Squares(), OWNERS[:5], "There are 5 owners for the 6 examples of the data set"),
        (Squares(0), [], "has no examples"),
        (iter([1]), OWNERS, "with a length"),
        (Squares(fault="alone"), OWNERS, r"give pairs \(example, label\)"),
        (Squares(fault="ragged"), OWNERS, "example 3 .* 3 x 3, but example 0 has 2 x 2"),
        (
            Squares(fault="raises"),
            OWNERS,
            r"test_pytorch_sets.py, line 2\d: .*example 3 .* the disk is gone \(OSError\)",
        ),
    ],
)
def test_what_does_not_fit_is_refused(dataset: Any, owners: Any, message: str) -> None:
    with pytest.raises(ScafflixError, match=message):
        sx.data.from_torch(dataset, owners)


def test_held_out_examples_of_strangers_are_refused() -> None:
    with pytest.raises(ScafflixError, match="Client 'c' has held-out examples but no training"):
        sx.data.from_torch(Squares(), OWNERS, held_out=(Squares(1), ["c"]))
