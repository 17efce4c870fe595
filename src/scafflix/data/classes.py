"""Clients made unlike: each keeps the examples of some of its classes only."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np

from scafflix.core.errors import ScafflixError
from scafflix.data.federation import Examples, Federation
from scafflix.data.holdout import keep
from scafflix.data.split import MOST_CLASSES, Classes
from scafflix.data.streams import Stream, generator


def keep_classes(federation: Federation, rule: Classes, seed: int) -> Federation:
    """Every client with a share of the classes that it trains on, drawn at random, at least one;
    the examples of the others go, from all its parts.

    >>> from scafflix.data import from_clients
    >>> fed = from_clients({"a": ([[0.0], [1.0], [2.0]], [0, 1, 2]), "b": ([[3.0]], [1])})
    >>> keep_classes(fed, Classes(0.5), seed=0).train.labels.tolist()
    [0, 1, 1]
    """
    labels = federation.train.labels
    if labels.ndim > 1 or len(np.unique(labels)) > MOST_CLASSES:
        what = "sequences" if labels.ndim > 1 else "numbers to predict"
        raise ScafflixError(
            f"split is 'classes:{rule.share:g}', but the labels of '{federation.name}' are {what}; "
            "leave split out."
        )
    random = generator(seed, Stream.CLASSES)
    drawn = []
    for first, last in itertools.pairwise(federation.train.offsets):
        own = np.unique(labels[first:last])
        drawn.append(random.choice(own, max(1, round(rule.share * len(own))), replace=False))

    def kept(part: Examples) -> Examples:
        spans = zip(itertools.pairwise(part.offsets), drawn, strict=True)
        mine = [np.isin(part.labels[first:last], classes) for (first, last), classes in spans]
        return keep(part, np.flatnonzero(np.concatenate(mine)))

    parts = {name: kept(part) for name, part in federation.parts.items()}
    return replace(federation, **parts)  # type: ignore[arg-type]
