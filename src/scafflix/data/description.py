"""A federation in a few numbers."""

from __future__ import annotations

from collections import Counter
from typing import TypedDict

import numpy as np
from numpy.typing import NDArray

from scafflix.data.arrays import by
from scafflix.data.federation import Examples, Federation, Labels, check_federation
from scafflix.data.text import NOTHING

PERCENTILES = {"min": 0, "10%": 10, "25%": 25, "50%": 50, "75%": 75, "90%": 90, "max": 100}

CLASS_LIMIT = 100
"""With more distinct labels than this, labels are numbers to predict rather than classes."""


class Description(TypedDict):
    """What `describe` returns; every value can be written as JSON."""

    name: str
    clients: int
    left_out: dict[str, int]  # how many clients for each reason
    rows: int  # training, validation and test together
    train_rows: int
    validation_rows: int
    test_rows: int
    rows_per_client: dict[str, int]  # percentiles of the training rows
    examples: str
    features: int
    nonzero_share: float
    smallest_client: tuple[str, int]  # its name and its training rows
    largest_client: tuple[str, int]
    classes: int | None  # None: numbers to predict
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
    check_federation(federation)
    parts = list(federation.parts.values())
    sizes = {name: len(part.labels) for name, part in federation.parts.items()}
    rows = sum(sizes.values())
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
        np.concatenate([labels_of(part)[0] for part in parts]),
        np.concatenate([labels_of(part)[1] for part in parts]),
        len(federation.clients),
    )
    return Description(
        name=federation.name,
        clients=len(federation.clients),
        left_out=dict(Counter(federation.left_out.values()).most_common()),
        rows=rows,
        train_rows=sizes["train"],
        validation_rows=sizes.get("validation", 0),
        test_rows=sizes.get("test", 0),
        rows_per_client={
            name: int(np.percentile(counts, share, method="lower"))
            for name, share in PERCENTILES.items()
        },
        examples=examples_in_words(federation.train),
        features=federation.dim,
        nonzero_share=nonzero / (rows * federation.dim),
        smallest_client=(federation.clients[smallest], int(counts[smallest])),
        largest_client=(federation.clients[largest], int(counts[largest])),
        classes=None if label_counts is None else len(label_counts),
        label_counts=label_counts,
        label_heterogeneity=heterogeneity,
    )


def examples_in_words(examples: Examples) -> str:
    """What one example is.

    >>> examples_in_words(Examples(np.zeros((1, 28, 28), np.uint8), np.zeros(1), np.array([0, 1])))
    '28 x 28 images, uint8'
    """
    shape, kind = examples.features.shape[1:], examples.features.dtype
    if examples.labels.ndim == 2:
        return f"sequences of {by(shape)}, {kind}"
    if len(shape) != 1:
        return f"{by(shape)} images, {kind}"
    layout = "" if isinstance(examples.features, np.ndarray) else "sparse "
    return f"{layout}vectors of {by(shape)}, {kind}"


def labels_of(examples: Examples) -> tuple[Labels, NDArray[np.int64]]:
    """Every label to predict and its client; a sequence has several."""
    labels, owners = examples.labels, examples.owners
    if labels.ndim == 1:
        return labels, owners
    there = labels != NOTHING
    return labels[there], np.repeat(owners, there.sum(axis=1))


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
    shares = table / np.maximum(table.sum(axis=1, keepdims=True), 1)
    distances = 0.5 * np.abs(shares - total / total.sum()).sum(axis=1)
    names = [f"{value:g}" if isinstance(value, float) else str(value) for value in values.tolist()]
    return dict(zip(names, total.tolist(), strict=True)), float(distances.mean())
