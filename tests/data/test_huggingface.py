from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet
from saved_sets import encoded, letters, save, save_splits

import scafflix as sx
from scafflix import ScafflixError
from scafflix.data.hub import hub_folder
from scafflix.data.text import decode


def table(rows: int = 30, **columns: Any) -> pa.Table:
    given = {"label": np.arange(rows) % 2, "who": [f"s{row % 3}" for row in range(rows)]}
    return pa.table({**columns, **given})


def load(folder: Path, **options: Any) -> sx.data.Federation:
    return sx.data.load(f"hf:{folder}", **{"split": "column:who", **options})


def written(tmp_path: Path, **columns: Any) -> Path:
    return save(table(**columns), tmp_path / "set")


# ---------------------------------------------------------------- files


def test_a_saved_data_set_of_several_files_has_all_rows_in_order(tmp_path: Path) -> None:
    made = letters(20)
    fed = load(save(made, tmp_path / "set", files=3), split="column:writer")
    assert fed.clients == ("writer-0", "writer-1", "writer-2", "writer-3")
    assert fed.train.features.shape == (20, 28, 28)
    assert fed.train.features.dtype == np.uint8
    own = [row for row in range(20) if row % 4 == 1]
    np.testing.assert_array_equal(
        fed.train.labels[fed.train.owners == 1], made["label"].to_numpy()[own]
    )


def test_splits_become_parts_with_the_same_clients(tmp_path: Path) -> None:
    folder = save_splits(
        tmp_path / "set", train=letters(24), test=letters(10, 1, writers=6), valid=letters(8, 2)
    )
    fed = load(folder, split="column:writer")
    assert len(fed.clients) == 4
    assert fed.left_out == {"writer-4": "no training rows", "writer-5": "no training rows"}
    assert fed.test is not None
    assert fed.validation is not None
    assert fed.test.counts.tolist() == [2, 2, 2, 2]
    assert fed.validation.counts.tolist() == [2, 2, 2, 2]
    with pytest.raises(ScafflixError, match=r"test is 0\.2, but .* brings a test part"):
        load(folder, split="column:writer", test=0.2)


@pytest.mark.parametrize("layout", ["names", "folders", "data"])
def test_parquet_and_arrow_files_tell_their_split_by_their_names(
    tmp_path: Path, layout: str
) -> None:
    places = {
        "names": ("train-00000.parquet", "test-00000.parquet"),
        "folders": ("train/0.parquet", "test/0.parquet"),
        "data": ("data/train-00000.parquet", "data/test-00000.parquet"),
    }[layout]
    for place, rows in zip(places, (30, 12), strict=True):
        file = tmp_path / "set" / place
        file.parent.mkdir(parents=True, exist_ok=True)
        parquet.write_table(table(rows, x=np.arange(float(rows))), file)
    with pa.ipc.new_file(tmp_path / "set" / "more.arrow", table(x=np.ones(30)).schema) as file:
        file.write_table(table(x=np.ones(30)))
    fed = load(tmp_path / "set")
    assert fed.test is not None
    assert (fed.train.counts.tolist(), fed.test.counts.tolist()) == ([20] * 3, [4] * 3)


def test_rows_divided_otherwise_take_held_out_rows_like_their_own(tmp_path: Path) -> None:
    fed = load(
        save_splits(tmp_path / "set", train=letters(300), test=letters(90, 1)),
        split="dirichlet:0.2",
        clients=5,
        drop=["writer"],
    )
    assert fed.test is not None
    assert len(fed.test.labels) == 90
    for label in range(3):
        trained, tested = (
            np.bincount(part.owners[part.labels == label], minlength=5)
            for part in (fed.train, fed.test)
        )
        np.testing.assert_allclose(tested, trained / trained.sum() * tested.sum(), atol=1)


# ---------------------------------------------------------------- columns


def test_coloured_images_have_three_channels_and_grey_ones_none(tmp_path: Path) -> None:
    pixels = np.random.default_rng(0).integers(0, 255, (30, 4, 5, 3))
    images = [encoded(image) for image in pixels]  # plain bytes are images too
    fed = load(written(tmp_path, image=images))
    np.testing.assert_array_equal(fed.train.features[:10], pixels[::3])


def test_lists_of_numbers_are_arrays_of_their_type(tmp_path: Path) -> None:
    codes = np.arange(30 * 6, dtype=np.int32).reshape(30, 6)
    fed = load(written(tmp_path, codes=list(codes)))
    assert fed.train.features.dtype == np.int32
    np.testing.assert_array_equal(fed.train.features[:10], codes[::3])


def test_text_with_a_label_is_words_and_without_one_characters(tmp_path: Path) -> None:
    texts = [f"word{row % 2} and more" for row in range(30)]
    fed = load(save(table(text=texts), tmp_path / "labelled"))
    assert fed.train.features.shape == (30, 4096)
    same = (fed.train.features[[0]] - fed.train.features[[2]]).nnz
    other = (fed.train.features[[0]] - fed.train.features[[1]]).nnz
    assert (same, other > 0) == (0, True)
    plain = save(table(text=texts).drop_columns(["label"]), tmp_path / "plain")
    fed = load(plain, test=0.2)
    assert {decode(row) for row in fed.train.features} == {*texts}


def test_columns_of_single_values_are_a_table(tmp_path: Path) -> None:
    folder = written(tmp_path, age=np.arange(30.0), sex=["f", "m", "m"] * 10)
    fed = load(folder)
    assert fed.preprocessing is not None
    assert fed.preprocessing.names == ("age", "sex=f", "sex=m")


def test_scaled_images_are_rows_of_pixels_for_linear_models(tmp_path: Path) -> None:
    fed = load(save(letters(60), tmp_path / "set"), split="column:writer", scale="maxabs", test=0.2)
    problem = sx.Problem(fed, sx.models.softmax())
    assert problem.shape == (784, 3)
    person = sx.personalize(problem, 1.0)
    record = sx.run(problem, person, sx.scafflix(sx.plan(problem, person)), rounds=20)
    assert record.clients["test_personal"].mean() > 0.9


# ---------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    ("columns", "options", "message"),
    [
        ({"x": [1.0] * 30}, {"split": "column:whom"}, "no column 'whom'; the columns are 'x'"),
        ({"x": [1.0] * 30}, {"label": "y"}, "no column 'y'"),
        ({"x": [1.0] * 30}, {"drop": ["z"]}, "no column 'z'"),
        ({"x": [1.0] * 30}, {"split": None}, "does not say whose rows are whose"),
        ({"x": [[1.0]] * 30, "id": [1] * 30}, {}, "there is also 'id'; .* drop id"),
        ({"x": [[1.0], [1.0, 2.0]] * 15}, {}, "row 2: .* list of another length"),
        ({"x": [["a"]] * 30}, {}, "lists of type string; give numbers"),
        ({"x": [[1.0]] * 30}, {"missing": "refuse"}, "missing is 'refuse', but .* not a table"),
        ({"x": [b"no image"] * 30}, {}, "image 0 .from 0.: is no image"),
        (
            {"x": [encoded(np.zeros((4, 4))), encoded(np.zeros((5, 4)))] * 15},
            {},
            "image 1 .from 0. is 5 x 4, but image 0 is 4 x 4; give images of one size",
        ),
        (
            {"x": [encoded(np.zeros((4, 4))), encoded(np.zeros((4, 4, 3)))] * 15},
            {},
            "all grey or all coloured",
        ),
        ({"x": [{"bytes": None, "path": "a.png"}] * 30}, {}, "has no bytes, at most a path"),
    ],
)
def test_a_data_set_that_does_not_fit_is_refused_in_one_sentence(
    tmp_path: Path, columns: dict[str, Any], options: dict[str, Any], message: str
) -> None:
    with pytest.raises(ScafflixError, match=message):
        load(written(tmp_path, **columns), **options)


def test_folders_that_hold_no_data_set_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ScafflixError, match="holds no data set"):
        load(tmp_path)
    with pytest.raises(ScafflixError, match="scafflix data fetch hf:some/set downloads one"):
        sx.data.load("hf:some/set", clients=2)
    folder = save(table(x=np.ones(30)), tmp_path / "set")
    (folder / "state.json").write_text(json.dumps({"_data_files": [{"filename": "../x.arrow"}]}))
    with pytest.raises(ScafflixError, match=r"names '\.\./x\.arrow', which is no file in it"):
        load(folder)


def test_a_data_set_that_was_fetched_is_found_by_its_name(cache: Path) -> None:
    save(table(x=np.ones(30)), hub_folder("some/set"))
    assert sx.data.load("hf:some/set", split="column:who").clients == ("s0", "s1", "s2")
    assert sx.data.fetch("hf:some/set").is_relative_to(cache)


# ---------------------------------------------------------------- the library itself


def test_without_the_library_a_fetch_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "datasets", None)
    with pytest.raises(ScafflixError, match=r"pip install 'scafflix\[huggingface\]'"):
        sx.data.fetch("hf:some/set")


def test_data_sets_in_memory_are_those_on_the_disk(tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets", reason="scafflix[huggingface] is not installed")
    path = save_splits(tmp_path / "set", train=letters(24), test=letters(8, 1))
    loaded = datasets.load_from_disk(str(path))
    fed, other = sx.data.from_huggingface(loaded, "writer"), load(path, split="column:writer")
    assert fed.clients == other.clients
    for name, part in fed.parts.items():
        np.testing.assert_array_equal(part.features, other.parts[name].features)
        np.testing.assert_array_equal(part.labels, other.parts[name].labels)
    chosen = loaded["train"].select([5, 1, 9])  # an index over the rows
    assert sx.data.from_huggingface(chosen, "writer").train.features.shape == (3, 28, 28)


class InMemory:
    """As much of a `datasets.Dataset` as is asked of it."""

    def __init__(self, made: pa.Table) -> None:
        self.made = made

    def with_format(self, name: str) -> InMemory:
        assert name == "arrow"
        return self

    def __getitem__(self, rows: slice) -> pa.Table:
        return self.made[rows]


def test_from_huggingface_takes_one_data_set_or_splits() -> None:
    made = InMemory(table(x=np.arange(30.0)))
    fed = sx.data.from_huggingface({"train": made, "test": made}, by="who", name="mine")
    assert (fed.name, fed.clients) == ("mine", ("s0", "s1", "s2"))
    assert fed.test is not None
    assert sx.data.from_huggingface(made, clients=5, drop=["who"]).train.counts.tolist() == [6] * 5


@pytest.mark.parametrize(
    ("dataset", "options", "message"),
    [
        ([1, 2], {}, "give a datasets.Dataset or a DatasetDict"),
        ({"tests": InMemory(table())}, {}, "there is a split 'tests'"),
        ({"test": InMemory(table())}, {}, "there is no split 'train'"),
        (InMemory(table(x=np.ones(30))), {"by": 3}, "by is 3; give the name of a column or"),
        (InMemory(table(x=np.ones(30))), {"by": "who", "clients": 3}, "leave clients and split"),
    ],
)
def test_what_is_no_data_set_is_refused(
    dataset: Any, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(ScafflixError, match=message):
        sx.data.from_huggingface(dataset, **options)
