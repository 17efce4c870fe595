"""A federation in a few numbers."""

from __future__ import annotations

from typing import TypedDict

import numpy as np
from numpy.typing import NDArray

from scafflix.data.federation import Federation, Labels

CLASS_LIMIT = 100
"""With more distinct labels than this, labels are numbers to predict rather than classes."""


class Description(TypedDict):
    """What `describe` returns; every value can be written as JSON."""

    name: str
    clients: int
    rows: int  # training and test together
    train_rows: int
    test_rows: int
    features: int
    nonzero_share: float
    smallest_client: tuple[str, int]  # its name and its training rows
    largest_client: tuple[str, int]
    label_counts: dict[str, int] | None  # None: more than CLASS_LIMIT distinct labels
    label_heterogeneity: float | None


def describe(federation: Federation) -> Description:
    """The size of a federation and how unequal its clients are.

    ``label_heterogeneity`` is the mean over clients of the total variation distance between
    the client's label shares and those of all: 0 if all are alike, towards 1 as each client
    has labels of its own.

    >>> from scafflix.data import from_clients
    >>> fed = from_clients({"a": ([[0.0], [2.0]], ["x", "x"]), "b": ([[1.0]] * 2, ["y", "y"])})
    >>> facts = describe(fed)
    >>> facts["label_counts"], facts["label_heterogeneity"], facts["nonzero_share"]
    ({'x': 2, 'y': 2}, 0.5, 0.75)
    """
    parts = [part for part in (federation.train, federation.test) if part is not None]
    rows = sum(len(part.labels) for part in parts)
    nonzero = sum(
        int(
            np.count_nonzero(
                part.features if isinstance(part.features, np.ndarray) else part.features.data
            )
        )
        for part in parts
    )
    counts = federation.train.counts
    smallest, largest = int(counts.argmin()), int(counts.argmax())
    label_counts, heterogeneity = label_facts(
        np.concatenate([part.labels for part in parts]),
        np.concatenate([part.owners for part in parts]),
        len(federation.clients),
    )
    return Description(
        name=federation.name,
        clients=len(federation.clients),
        rows=rows,
        train_rows=len(federation.train.labels),
        test_rows=rows - len(federation.train.labels),
        features=federation.dim,
        nonzero_share=nonzero / (rows * federation.dim),
        smallest_client=(federation.clients[smallest], int(counts[smallest])),
        largest_client=(federation.clients[largest], int(counts[largest])),
        label_counts=label_counts,
        label_heterogeneity=heterogeneity,
    )


def label_facts(
    labels: Labels, owners: NDArray[np.int64], clients: int
) -> tuple[dict[str, int] | None, float | None]:
    """How often each label occurs and how differently the clients' labels are spread."""
    values, label_of_row = np.unique(labels, return_inverse=True)
    if len(values) > CLASS_LIMIT:
        return None, None
    table = np.bincount(owners * len(values) + label_of_row, minlength=clients * len(values))
    table = table.reshape(clients, len(values))  # rows of each client with each label
    total = table.sum(axis=0)
    shares = table / table.sum(axis=1, keepdims=True)
    distances = 0.5 * np.abs(shares - total / total.sum()).sum(axis=1)
    names = [f"{value:g}" if isinstance(value, float) else str(value) for value in values.tolist()]
    return dict(zip(names, total.tolist(), strict=True)), float(distances.mean())
