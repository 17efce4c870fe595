"""The rows of a known data set or of a file, before they are given to clients; and people, who
come with theirs."""

from __future__ import annotations

from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import numpy as np
from scipy import sparse

from scafflix.core.errors import ScafflixError
from scafflix.data.archive import read_archive
from scafflix.data.arrays import join, join_held_out
from scafflix.data.catalogue import CATALOGUE, locate
from scafflix.data.download import fetch
from scafflix.data.federation import Features, Federation
from scafflix.data.origin import Origin
from scafflix.data.recognition import reader_of
from scafflix.data.rows import Rows
from scafflix.data.svmlight import read_svmlight
from scafflix.data.threshold import NO_TRAINING_ROWS

PLAIN_FILES = {  # of scikit-learn, with as many lines before the numbers; labels come last
    "breast_cancer": ("breast_cancer.csv", 1),
    "digits": ("digits.csv.gz", 0),
    "iris": ("iris.csv", 1),
    "wine": ("wine_data.csv", 1),
}


def read_people(origin: Origin, test: float) -> Federation:
    """The federation of people; those without training rows are left out."""
    path = origin.path or locate(origin.name) or fetch(origin.name)
    reader = reader_of(path)
    if reader is None:
        raise ScafflixError(f"{path}: there are no clients' examples in a known format.")
    parts = reader(path)
    if test > 0.0 and parts.test is not None:
        raise ScafflixError(f"test is {test:g}, but {path} brings a test part; leave test out.")
    train, held_out = (
        {client: examples for client, examples in clients.items() if len(examples[1]) > 0}
        for clients in (parts.train, parts.test or {})
    )
    if not train:
        raise ScafflixError(f"{path}: no client has training rows; give at least one.")
    empty = {
        client: NO_TRAINING_ROWS
        for client in (*parts.train, *(parts.test or ()))
        if client not in train
    }
    examples = join(train)
    test_part = None if parts.test is None else join_held_out(held_out, list(train), examples)
    return Federation(origin.name, tuple(train), examples, test_part, left_out=empty)


def read(origin: Origin, features: int | None, column: str | None) -> Rows:
    """The rows of the origin, with their clients if a column says so or an archive holds them."""
    match origin.kind:
        case "archive":
            assert origin.path is not None
            rows = read_archive(origin.path)
            if column is not None and (column != "client" or rows.clients is None):
                raise ScafflixError(
                    f"{origin}: there is no column {column!r}; "
                    "an archive names the clients of its rows in an array 'client'."
                )
            return rows
        case "bundled":
            rows = read_bundled(origin.name)
        case _:
            rows = read_text(origin, features)
    return rows if column is None else split_off(rows, column, origin)


def read_text(origin: Origin, features: int | None) -> Rows:
    """The rows of an svmlight file; a known one is located or else fetched."""
    if origin.path is not None:
        return read_svmlight(origin.path, features)
    path = locate(origin.name) or fetch(origin.name)
    return read_svmlight(path, features or CATALOGUE[origin.name].features)


def read_bundled(name: str) -> Rows:
    """The rows of a data set that comes with scikit-learn, from its file where that is plain:
    importing scikit-learn takes longer than a small run."""
    file, header = PLAIN_FILES.get(name, ("", 0))
    package = find_spec("sklearn")
    if file and package is not None and package.origin is not None:
        path = Path(package.origin).parent / "datasets" / "data" / file
        if path.is_file():
            values = np.loadtxt(path, delimiter=",", skiprows=header)
            return Rows(np.ascontiguousarray(values[:, :-1]), values[:, -1].astype(int))
    from sklearn import datasets

    features, labels = getattr(datasets, f"load_{name}")(return_X_y=True)
    return Rows(features, labels)


def split_off(rows: Rows, column: str, origin: Origin) -> Rows:
    """The rows with one feature, named by its index from 1, turned into their clients."""
    count = rows.features.shape[1]
    index = int(column) if column.isdecimal() else 0
    if not 1 <= index <= count:
        raise ScafflixError(
            f"{origin}: there is no column {column!r}; its columns are the features, 1 to {count}."
        )
    rest: Features
    if isinstance(rows.features, np.ndarray):
        ids = rows.features[:, index - 1]
        rest = np.delete(rows.features, index - 1, axis=1)
    else:
        # Slices, because SciPy's indexing by a list takes memory for every column there is.
        ids = rows.features[:, index - 1 : index].toarray()[:, 0]
        left, right = rows.features[:, : index - 1], rows.features[:, index:]
        rest = sparse.csr_array(sparse.hstack([left, right], format="csr"))
    return replace(rows, features=rest, clients=ids)
