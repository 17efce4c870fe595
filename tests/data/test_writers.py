from pathlib import Path
from typing import Any

import numpy as np
import pytest

from scafflix.core.errors import ScafflixError
from scafflix.data import load


def saved(folder: Path, **changes: Any) -> Path:
    """Writer a has 3 training and 1 test image, b 2 and none, c none and 1."""
    arrays: dict[str, Any] = {
        "train_x": np.arange(5, dtype=np.uint8)[:, None, None] * np.ones((28, 28), np.uint8),
        "train_y": np.array([0, 61, 5, 6, 7], np.uint8),
        "train_user": ["a", "b", "a", "b", "a"],
        "test_x": np.full((2, 28, 28), 255, np.uint8),
        "test_y": np.array([1, 2], np.uint8),
        "test_user": ["c", "a"],
    }
    path = folder / "writers.npz"
    kept = {name: array for name, array in {**arrays, **changes}.items() if array is not None}
    np.savez_compressed(path, **kept)
    return path


def test_writers_are_the_clients_and_images_stay_bytes(tmp_path: Path) -> None:
    fed = load(saved(tmp_path))
    assert (fed.name, fed.clients) == ("writers", ("a", "b"))
    assert fed.train.features.shape == (5, 28, 28)
    assert (fed.train.features.dtype, fed.train.labels.dtype) == (np.uint8, np.int8)
    assert fed.train.features[:, 0, 0].tolist() == [0, 2, 4, 1, 3]
    assert fed.train.labels.tolist() == [0, 5, 7, 61, 6]


def test_the_archive_brings_its_test_part(tmp_path: Path) -> None:
    fed = load(saved(tmp_path))
    assert fed.test is not None
    assert fed.test.counts.tolist() == [1, 0]
    assert fed.test.labels.tolist() == [2]


def test_a_writer_without_training_images_is_left_out(tmp_path: Path) -> None:
    assert load(saved(tmp_path)).left_out == {"c": "no training rows"}


def test_a_writer_without_test_images_is_left_out_where_a_size_is_asked_for(
    tmp_path: Path,
) -> None:
    fed = load(saved(tmp_path), min_examples=1)
    assert fed.clients == ("a",)
    assert fed.left_out == {"c": "no training rows", "b": "no test rows"}


def test_a_fraction_to_test_is_refused_beside_a_test_part(tmp_path: Path) -> None:
    with pytest.raises(ScafflixError, match=r"test is 0\.1, but .*writers.npz brings a test part"):
        load(saved(tmp_path), test=0.1)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"test_y": None}, "there is no array 'test_y'"),
        ({"train_x": np.ones((5, 28, 28))}, "train_x: values of type float64"),
        ({"train_x": np.ones((5, 27, 28), np.uint8)}, r"train_x: .* shape \(5, 27, 28\)"),
        ({"train_y": [0, 1, 62, 3, 4]}, r"train, client 'a': label 1 \(from 0\) is 62; .* to 61"),
        ({"train_y": [0, -1, 2, 3, 4]}, r"train, client 'b': label 0 \(from 0\) is -1"),
        ({"train_y": [0.5] * 5}, "client 'a': labels of type float64"),
        ({"train_y": [1]}, r"train_y: shape \(1,\) for 5 images"),
        ({"test_user": ["a"]}, r"test_user: shape \(1,\) for 2 images"),
        ({"test_user": np.array([{}, {}])}, "Object arrays"),
    ],
)
def test_an_inconsistent_archive_is_refused(
    tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(ScafflixError, match=message) as caught:
        load(saved(tmp_path, **changes))
    assert "writers.npz" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_an_archive_that_would_fill_the_memory_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("scafflix.data.parts.SIZE_LIMIT", 1000)
    with pytest.raises(ScafflixError, match="more than 1000 bytes"):
        load(saved(tmp_path))


def test_the_real_writers_are_read_whole(shared_data: Path) -> None:
    fed = load(shared_data / "femnist" / "femnist_300_writers.npz")
    assert fed.test is not None
    assert len(fed.clients) == 300
    assert (len(fed.train.labels), len(fed.test.labels)) == (41_196, 4_691)
    assert (fed.test.counts == 0).sum() == 4
