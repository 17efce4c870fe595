"""Changes of the features that every client agrees on: a common scale, a constant column.

Scales are those of the training rows of all clients together; other rows follow them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Literal, cast, get_args

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from scafflix.core.arguments import choice
from scafflix.core.errors import ScafflixError
from scafflix.data.admission import check_dense_size
from scafflix.data.federation import Features, Federation
from scafflix.data.preprocessing import Preprocessing

Scale = Literal["none", "maxabs", "standard"]


def check_scale(scale: str) -> Scale:
    """The scale, if it is one of the three."""
    return cast(Scale, choice("scale", scale, get_args(Scale)))


def rescale(federation: Federation, scale: str) -> Federation:
    """Divide each feature by its largest absolute value, or standardize it.

    ``maxabs`` keeps zeros zero; ``standard`` subtracts the mean and divides by the standard
    deviation, which makes the features dense. Images become rows of pixels. A feature that is 0
    everywhere stays 0, and a constant feature becomes 0 under ``standard``.

    >>> from scafflix.data import from_clients
    >>> fed = from_clients({"a": ([[1.0, 7.0]], [0]), "b": ([[-4.0, 7.0]], [1])})
    >>> rescale(fed, "maxabs").train.features.tolist()
    [[0.25, 1.0], [-1.0, 1.0]]
    >>> rescale(fed, "standard").train.features.tolist()
    [[1.0, 0.0], [-1.0, 0.0]]
    """
    if check_scale(scale) == "none":
        return federation
    federation = as_vectors(federation, f"scale is '{scale}'")
    check_dense_size(1, federation.dim, federation.name)  # a scale for each feature
    largest = largest_absolute(federation.train.features)
    scaled = map_features(federation, lambda features: divide(features, largest), scale)
    shift, divisor = np.zeros_like(largest), largest
    if scale == "standard":
        # After maxabs no square can overflow, and the standardized features are the same.
        rows = sum(len(part.labels) for part in scaled.parts.values())
        check_dense_size(rows, scaled.dim, scaled.name)
        dense = map_features(scaled, to_dense)
        train = to_dense(dense.train.features)
        # A rounded mean would leave a constant feature a spurious tiny deviation.
        constant = train.min(axis=0) == train.max(axis=0)
        mean = np.where(constant, train[0], train.mean(axis=0))
        deviation = np.where(constant, 1.0, (train - mean).std(axis=0))
        scaled = map_features(
            dense, lambda features: (to_dense(features) - mean) / deviation, scale
        )
        shift, divisor = mean * largest, deviation * largest
    return replace(scaled, preprocessing=Preprocessing((), shift, divisor))


def scale_as(federation: Federation, made: Preprocessing) -> Federation:
    """Scale features as those of another federation were, and append its intercept."""
    federation = as_vectors(federation, "scaling is asked for")
    if len(made.shift) != federation.dim:
        raise ScafflixError(
            f"{federation.name} has {federation.dim} features, but the run was prepared for "
            f"{len(made.shift)}; give the same features in the same order."
        )
    if made.shift.any():
        rows = sum(len(part.labels) for part in federation.parts.values())
        check_dense_size(rows, federation.dim, federation.name)
        scaled = map_features(
            federation, lambda features: (to_dense(features) - made.shift) / made.divisor
        )
    else:
        scaled = map_features(federation, lambda features: divide(features, made.divisor))
    scaled = replace(scaled, preprocessing=replace(made, intercept=False))
    return append_intercept(scaled) if made.intercept else scaled


def append_intercept(federation: Federation) -> Federation:
    """Add a last feature that is 1 everywhere.

    >>> from scafflix.data import from_clients
    >>> append_intercept(from_clients({"a": ([[5.0]], [0])})).train.features.tolist()
    [[5.0, 1.0]]
    """
    federation = as_vectors(federation, "intercept is asked for")
    before = federation.preprocessing or Preprocessing(
        (), np.zeros(federation.dim), np.ones(federation.dim)
    )

    def with_ones(features: Features) -> Features:
        ones = np.ones((features.shape[0], 1))
        if isinstance(features, np.ndarray):
            return np.hstack([features, ones])
        return sparse.csr_array(sparse.hstack([features, sparse.csr_array(ones)], format="csr"))

    made = map_features(federation, with_ones)
    return replace(made, preprocessing=replace(before, intercept=True))


def map_features(
    federation: Federation, change: Callable[[Features], Features], scale: str = "none"
) -> Federation:
    """The same federation with the features of every part changed."""
    parts = {}
    for name, part in federation.parts.items():
        try:
            parts[name] = replace(part, features=change(part.features))
        except ScafflixError as error:
            # A held-out value may be too far out for a scale that it had no part in.
            where = f"{federation.name}, {name} part after scale='{scale}'"
            raise ScafflixError(f"{where}: {error}") from None
    return replace(federation, **parts)  # type: ignore[arg-type]


def as_vectors(federation: Federation, request: str) -> Federation:
    """The pixels of images as rows of numbers; sequences can be neither scaled nor extended."""
    if federation.train.labels.ndim != 1:
        raise ScafflixError(
            f"{request}, but the examples of {federation.name} are sequences, which stay as they "
            "are; leave it out."
        )
    if federation.train.features.ndim == 2:
        return federation
    return map_features(federation, lambda images: to_dense(images).reshape(images.shape[0], -1))


def largest_absolute(features: Features) -> NDArray[np.float64]:
    """The largest absolute value of each feature, or 1 where all are 0."""
    if isinstance(features, np.ndarray):
        # of pixels and codes too, whose type may lack the opposite of its least number
        ends = [features.max(axis=0), features.min(axis=0)]
        largest = np.abs(np.array(ends, np.float64)).max(axis=0)
    else:
        largest = np.zeros(features.shape[1])
        np.maximum.at(largest, features.indices, np.abs(features.data))
    return np.where(largest == 0.0, 1.0, largest)


def divide(features: Features, divisor: NDArray[np.float64]) -> Features:
    """Each feature divided by its own number."""
    with np.errstate(over="ignore"):  # an infinity in the test part is refused by name
        if isinstance(features, np.ndarray):
            return features / divisor
        data = features.data / divisor[features.indices]
    return sparse.csr_array((data, features.indices, features.indptr), shape=features.shape)


def to_dense(features: Features) -> NDArray[np.float64]:
    """The features as a dense array."""
    return features if isinstance(features, np.ndarray) else features.toarray()
