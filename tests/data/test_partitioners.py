"""Partitioners of flwr-datasets: the library's own where it is installed, else one like them."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import scafflix as sx
from scafflix import ScafflixError


class Dataset:
    """As much of a `datasets.Dataset` as a partitioner needs."""

    def __init__(self, columns: dict[str, list[Any]]) -> None:
        self.columns = columns

    @staticmethod
    def from_dict(columns: dict[str, list[Any]]) -> Dataset:
        return Dataset(columns)

    def __getitem__(self, name: str) -> list[Any]:
        return self.columns[name]

    def select(self, rows: Any) -> Dataset:
        return Dataset({name: [v[row] for row in rows] for name, v in self.columns.items()})


class EveryNthPartitioner:
    """The interface of a partitioner; rows of class 0 go to nobody."""

    def __init__(self, num_partitions: int, partition_by: str, first: int = 0, seed: int = 42):
        if first < 0:
            raise ValueError("first must not be negative")
        self._partition_by, self._count, self.seed = partition_by, num_partitions, seed
        self.first = first
        self.dataset: Any = None

    @property
    def num_partitions(self) -> int:
        return self._count

    def is_dataset_assigned(self) -> bool:
        return self.dataset is not None

    def load_partition(self, number: int) -> Dataset:
        kept = [row for row, label in enumerate(self.dataset[self._partition_by]) if label]
        return self.dataset.select(kept[self.first + number :: self._count])


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stand-ins for both libraries."""
    datasets, parent, module = (ModuleType(name) for name in ("datasets", "flwr_datasets", "p"))
    datasets.Dataset = Dataset  # type: ignore[attr-defined]
    module.EveryNthPartitioner = EveryNthPartitioner  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "datasets", datasets)
    monkeypatch.setitem(sys.modules, "flwr_datasets", parent)
    monkeypatch.setitem(sys.modules, "flwr_datasets.partitioner", module)


@pytest.mark.usefixtures("library")
@pytest.mark.parametrize("name", ["every_nth", "EveryNthPartitioner", "every-nth"])
def test_a_partitioner_by_name_divides_any_rows(name: str) -> None:
    labels = np.arange(40) % 4
    features = np.arange(40.0)[:, None]
    fed = sx.data.from_arrays(features, labels, 3, split=f"flwr:{name}:first=1")
    own = np.flatnonzero(labels)[1:]
    assert fed.clients == ("client-0", "client-1", "client-2")
    for client in range(3):
        rows = fed.train.features[fed.train.owners == client, 0]
        np.testing.assert_array_equal(rows, own[client::3])


@pytest.mark.usefixtures("library")
def test_clients_without_rows_are_left_out() -> None:
    fed = sx.data.from_arrays(np.ones((4, 1)), [0, 1, 1, 0], 3, split="flwr:every_nth")
    assert (fed.clients, fed.left_out) == (
        ("client-0", "client-1"),
        {"client-2": "no training rows"},
    )


@pytest.mark.usefixtures("library")
@pytest.mark.parametrize(
    ("split", "message"),
    [
        ("flwr:nth", "no partitioner 'nth'; it has every_nth"),
        ("flwr:", "name a partitioner of flwr-datasets"),
        ("flwr:every_nth:last=3", "has no last; it has num_partitions, partition_by, first, seed"),
        ("flwr:every_nth:first", "give the arguments of the partitioner as KEY=VALUE"),
        ("flwr:every_nth:first=-1", "The partitioner every_nth: first must not be negative"),
        ("flwr:every_nth:num_partitions=4", "clients is 3, but the split says num_partitions=4"),
        ("flwr:every_nth:partition_by=ward", "goes by a column 'ward'; the columns are 'label'"),
    ],
)
def test_a_partitioner_or_argument_that_is_not_there_is_refused(split: str, message: str) -> None:
    with pytest.raises(ScafflixError, match=message):
        sx.data.load("iris", clients=3, split=split)


def test_without_the_library_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "flwr_datasets", None)
    monkeypatch.setitem(sys.modules, "flwr_datasets.partitioner", None)
    with pytest.raises(ScafflixError, match=r"pip install 'scafflix\[huggingface\]'"):
        sx.data.load("iris", clients=3, split="flwr:iid")


OWN = {
    "dirichlet:alpha=0.5": 6,
    "pathological:num_classes_per_partition=2": 6,
    "iid": 6,
    "linear": 6,
    "square": 6,
    "exponential": 6,
    "shard:num_shards_per_partition=2": 6,
    "continuous:strictness=0.5": 6,
    "size:partition_sizes=100+200+300": None,
    "inner_dirichlet:partition_sizes=300+500,alpha=0.5": None,
    "natural_id": None,
    "grouped_natural_id:group_size=5": None,
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("words", OWN)
def test_the_partitioners_of_the_library_by_their_names(words: str) -> None:
    pytest.importorskip("flwr_datasets", reason="scafflix[huggingface] is not installed")
    fed = sx.data.load("digits", clients=OWN[words], split=f"flwr:{words}")
    again = sx.data.load("digits", clients=OWN[words], split=f"flwr:{words}")
    np.testing.assert_array_equal(fed.train.features, again.train.features)
    if "sizes" in words:
        assert "+".join(map(str, fed.train.counts)) in words
    elif words != "pathological:num_classes_per_partition=2":
        assert len(fed.train.labels) >= 1797 - 12
    if words == "natural_id":
        assert sorted(fed.clients) == [str(digit) for digit in range(10)]


def labelled(label: str, kind: str) -> Any:
    """Rows of 4 numbers with a label under a name, as classes or plain numbers."""
    datasets = pytest.importorskip("datasets", reason="scafflix[huggingface] is not installed")
    random = np.random.default_rng(0)
    rows = {"x": random.normal(size=(200, 4)).tolist(), label: (np.arange(200) % 4).tolist()}
    features = {
        "x": datasets.Sequence(datasets.Value("float64")),
        label: datasets.ClassLabel(names=list("abcd"))
        if kind == "classes"
        else datasets.Value("int64"),
    }
    return datasets.Dataset.from_dict(rows, features=datasets.Features(features))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("label", "kind"), [("label", "numbers"), ("digit", "classes")])
@pytest.mark.parametrize("way", ["dirichlet", "pathological", "in words"])
def test_a_partitioner_that_goes_by_the_label_leaves_it_to_the_model(
    way: str, label: str, kind: str
) -> None:
    library = pytest.importorskip(
        "flwr_datasets.partitioner", reason="scafflix[huggingface] is not installed"
    )
    made = labelled(label, kind)
    if way == "in words":
        split = f"flwr:dirichlet:alpha=0.5,min_partition_size=2,partition_by={label}"
        fed = sx.data.from_huggingface(made, clients=5, split=split)
    elif way == "dirichlet":
        by = library.DirichletPartitioner(5, label, 0.5, min_partition_size=2)
        fed = sx.data.from_huggingface(made, by=by)
    else:
        fed = sx.data.from_huggingface(made, by=library.PathologicalPartitioner(5, label, 2))
        assert all(len(np.unique(fed.train.labels[fed.train.owners == i])) == 2 for i in range(5))
    assert fed.train.features.shape == (200, 4)
    known = dict(zip(map(tuple, np.float32(made["x"])), made[label], strict=True))
    found = zip(map(tuple, np.float32(fed.train.features)), fed.train.labels, strict=True)
    assert all(known[row] == mine for row, mine in found)


@pytest.mark.filterwarnings("ignore")
def test_a_column_of_owners_is_no_label_by_itself() -> None:
    library = pytest.importorskip(
        "flwr_datasets.partitioner", reason="scafflix[huggingface] is not installed"
    )
    for by in ("label", library.NaturalIdPartitioner("label")):
        with pytest.raises(ScafflixError, match="'label' says whose row it is"):
            sx.data.from_huggingface(labelled("label", "numbers"), by=by)
