from pathlib import Path

import numpy as np
import pytest

from scafflix.core.errors import ScafflixError
from scafflix.data import Examples, Federation, from_arrays, load

SIZES = {"a": 10, "b": 4, "c": 1}
IDS = [client for client, size in SIZES.items() for _ in range(size)]


def loaded(tmp_path: Path, kind: str, **options: object) -> Federation:
    """The same three clients from a source of each kind."""
    path = tmp_path / f"three.{kind}"
    if kind == "csv":
        path.write_text("x,site,label\n" + "".join(f"{i},{c},0\n" for i, c in enumerate(IDS)))
        return load(path, split="column:site", **options)  # type: ignore[arg-type]
    if kind == "npz":
        np.savez(path, x=np.arange(15.0)[:, None], y=np.zeros(15), client=IDS)
        return load(path, **options)  # type: ignore[arg-type]
    if kind == "txt":
        path.write_text("".join(f"1 1:{ord(c) - 96} 2:{i}\n" for i, c in enumerate(IDS)))
        return load(path, split="column:1", **options)  # type: ignore[arg-type]
    return from_arrays(np.arange(15.0)[:, None], np.zeros(15), IDS, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", ["csv", "npz", "txt", "arrays"])
def test_every_source_divides_and_leaves_out_alike(tmp_path: Path, kind: str) -> None:
    fed = loaded(tmp_path, kind, test=0.2, validation=0.25, min_examples=3)
    assert fed.test is not None
    assert fed.validation is not None
    # of 10 rows 2 go to test and 2 of 8 to validation; of 4 rows 1 and 1 of 3
    assert fed.train.counts.tolist() == [6]
    assert (fed.test.counts.tolist(), fed.validation.counts.tolist()) == ([2], [2])
    assert list(fed.left_out.values()) == ["fewer than 3 training rows"] * 2


def test_without_a_number_nobody_is_left_out(tmp_path: Path) -> None:
    fed = loaded(tmp_path, "csv", test=0.2, validation=0.25)
    assert (fed.clients, fed.left_out) == (("a", "b", "c"), {})


def test_exactly_enough_rows_are_enough(tmp_path: Path) -> None:
    assert loaded(tmp_path, "csv", min_examples=4).clients == ("a", "b")


def test_a_client_needs_a_row_of_each_part_that_is_asked_for(tmp_path: Path) -> None:
    assert loaded(tmp_path, "csv", min_examples=1).left_out == {}
    assert loaded(tmp_path, "csv", test=0.3, min_examples=1).left_out == {"c": "no test rows"}
    assert loaded(tmp_path, "csv", validation=0.1, min_examples=1).left_out == {
        "b": "no validation rows",
        "c": "no validation rows",
    }


def test_the_scale_is_that_of_the_clients_that_remain(tmp_path: Path) -> None:
    fed = loaded(tmp_path, "csv", min_examples=5, scale="maxabs")
    assert fed.train.features.max() == 1.0
    assert fed.clients == ("a",)


def test_made_up_clients_can_be_left_out_too() -> None:
    fed = load("synthetic:clients=3,rows=10", validation=0.2, min_examples=8)
    assert fed.train.counts.tolist() == [8, 8, 8]
    with pytest.raises(ScafflixError, match=r"min_examples is 9, .* no client .* has 8"):
        load("synthetic:clients=3,rows=10", validation=0.2, min_examples=9)


@pytest.mark.parametrize("number", [0, -1, 2.5, "3", True])
def test_a_number_that_is_none_is_refused(number: int) -> None:
    with pytest.raises(ScafflixError, match=r"min_examples is .*; give a whole number"):
        load("iris", clients=3, min_examples=number)


def test_images_are_left_out_with_their_clients() -> None:
    from scafflix.data.threshold import leave_out

    images = np.arange(3, dtype=np.uint8)[:, None, None] * np.ones((2, 2), np.uint8)
    fed = Federation("f", ("a", "b"), Examples(images, np.arange(3), np.array([0, 1, 3])))
    assert leave_out(fed, 2).train.features[:, 0, 0].tolist() == [1, 2]
