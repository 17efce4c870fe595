"""Who has what: the examples of every client, packed into a few arrays."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from scafflix.core.arguments import instance, numbers, shown
from scafflix.core.errors import ScafflixError
from scafflix.data.identity import check_ids

if TYPE_CHECKING:
    from scafflix.data.preprocessing import Preprocessing

Features = NDArray[Any] | sparse.csr_array
Labels = NDArray[np.generic]


@dataclass(frozen=True, eq=False)
class Examples:
    """Examples of consecutive clients: client i owns rows ``offsets[i]:offsets[i + 1]``.

    An example is a row of features, dense or sparse, or an array of any shape and numeric type:
    an image, a sequence. Its label is one value, or one for each place of a sequence, with -1
    where there is nothing to predict. Labels stay as they were found (numbers or strings); a
    model gives them a meaning.
    """

    features: Features  # [rows, *shape]
    labels: Labels  # [rows] or [rows, length]
    offsets: NDArray[np.int64]  # [clients + 1]

    def __post_init__(self) -> None:
        _check_features(self.features)
        _check_labels(self.labels)
        object.__setattr__(self, "offsets", _checked_offsets(self.offsets))
        rows = self.features.shape[0]
        if self.labels.ndim not in (1, 2) or self.labels.shape[0] != rows:
            raise ScafflixError(
                f"There are {rows} rows of features but labels of shape {self.labels.shape}; "
                "give one label, or one sequence of labels, per row."
            )
        if (
            not len(self.offsets)
            or self.offsets[0] != 0
            or self.offsets[-1] != rows
            or (np.diff(self.offsets) < 0).any()
        ):
            raise ScafflixError(
                f"The offsets of {rows} rows must rise from 0 to {rows}, "
                "one step for each client's rows."
            )

    @property
    def counts(self) -> NDArray[np.int64]:
        """The number of examples of each client."""
        return np.diff(self.offsets)

    @property
    def owners(self) -> NDArray[np.int64]:
        """The client (as an index) of each row."""
        return np.repeat(np.arange(len(self.offsets) - 1), self.counts)

    def take(self, clients: Sequence[int] | NDArray[np.int64]) -> Examples:
        """The examples of the chosen clients, in that order."""
        chosen = chosen_clients(clients, len(self.offsets) - 1)
        counts = self.counts[chosen]
        offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
        # Row r of the result lies as far into its client's block as r lies behind offsets[client].
        rows = np.repeat(self.offsets[:-1][chosen] - offsets[:-1], counts) + np.arange(offsets[-1])
        return Examples(self.features[rows], self.labels[rows], offsets)


@dataclass(frozen=True, eq=False)
class Federation:
    """The clients of a federation, their training, test and validation examples.

    >>> from scafflix.data import from_clients
    >>> fed = from_clients({"a": ([[1.0], [2.0]], [0, 1]), "b": ([[3.0]], [1])})
    >>> fed.clients, fed.train.counts.tolist(), fed.dim
    (('a', 'b'), [2, 1], 1)
    """

    name: str
    clients: tuple[str, ...]
    train: Examples
    test: Examples | None = None
    validation: Examples | None = None
    left_out: Mapping[str, str] = field(default_factory=dict)  # client -> why it is not here
    preprocessing: Preprocessing | None = None  # what was done to columns or features

    def __post_init__(self) -> None:
        self._check_types()
        if not self.clients:
            raise ScafflixError(f"The federation '{self.name}' has no clients; give at least one.")
        check_ids(self.clients, self.name)
        for part in self.parts.values():
            if len(part.counts) != len(self.clients):
                raise ScafflixError(
                    f"The federation '{self.name}' has {len(self.clients)} clients but examples "
                    f"of {len(part.counts)}; give the examples of each client."
                )
        for name, part in self.parts.items():
            if part.features.shape[1:] != self.train.features.shape[1:]:
                raise ScafflixError(
                    f"The federation '{self.name}' has training examples of shape "
                    f"{self.train.features.shape[1:]} but {name} examples of shape "
                    f"{part.features.shape[1:]}; give the same."
                )
            if part.labels.shape[1:] != self.train.labels.shape[1:]:
                raise ScafflixError(
                    f"The federation '{self.name}' has training labels of shape "
                    f"{self.train.labels.shape[1:]} but {name} labels of shape "
                    f"{part.labels.shape[1:]}; give the same."
                )
        client, times = Counter(self.clients).most_common(1)[0]
        if times > 1:
            raise ScafflixError(
                f"The federation '{self.name}' has {times} clients '{client}'; "
                "give each its own id."
            )
        empty = np.flatnonzero(self.train.counts == 0)
        if len(empty) > 0:
            raise ScafflixError(
                f"Client '{self.clients[int(empty[0])]}' of '{self.name}' has no training "
                "examples; leave it out."
            )

    def _check_types(self) -> None:
        instance("The name of a federation", self.name, str, "text")
        instance("clients", self.clients, tuple, "a tuple of the clients' ids")
        for client in self.clients:
            instance("The id of a client", client, str, "text")
        instance("left_out", self.left_out, dict, "a dictionary from clients to reasons")
        wanted = "an sx.data.Examples; sx.data.from_arrays and from_clients make them"
        instance("train", self.train, Examples, wanted)
        for name, part in self.parts.items():
            instance(name, part, Examples, wanted)
            if (part.labels.dtype.kind == "U") != (self.train.labels.dtype.kind == "U"):
                raise ScafflixError(
                    f"The federation '{self.name}' has training labels of type "
                    f"{self.train.labels.dtype} but {name} labels of type {part.labels.dtype}; "
                    "give all numbers or all text."
                )

    @property
    def dim(self) -> int:
        """The number of features: of an image, its pixels; of a sequence, its places."""
        return math.prod(self.train.features.shape[1:])

    @property
    def parts(self) -> dict[str, Examples]:
        """The parts that there are, by name: train, then test and validation."""
        every = {"train": self.train, "test": self.test, "validation": self.validation}
        return {name: part for name, part in every.items() if part is not None}

    def in_float64(self) -> Federation:
        """The same examples as linear models reckon with them: in the type of a pixel the square
        of 16 is 0."""
        if all(part.features.dtype == np.float64 for part in self.parts.values()):
            return self
        parts = {}
        for name, part in self.parts.items():
            if part.features.dtype.kind not in "biuf":
                raise ScafflixError(
                    f"The features of '{self.name}' have the type {part.features.dtype}; give "
                    "real numbers."
                )
            parts[name] = replace(part, features=part.features.astype(np.float64))
        return replace(self, **parts)  # type: ignore[arg-type]

    def take(self, clients: Sequence[int] | NDArray[np.int64]) -> Federation:
        """The federation of the chosen clients only, in that order.

        >>> from scafflix.data import from_clients
        >>> fed = from_clients({"a": ([[1.0]], [0]), "b": ([[2.0]], [1]), "c": ([[3.0]], [0])})
        >>> fed.take([2, 0]).train.features.tolist()
        [[3.0], [1.0]]
        """
        clients = chosen_clients(clients, len(self.clients), f" in '{self.name}'").tolist()
        parts = {name: part.take(clients) for name, part in self.parts.items()}
        return replace(self, clients=tuple(self.clients[i] for i in clients), **parts)  # type: ignore[arg-type]


def check_federation(federation: object) -> None:
    """Refuse what a user may have put in the place of a federation."""
    wanted = "a federation, as sx.data.load, from_arrays or from_clients makes it"
    instance("federation", federation, Federation, wanted)


_ARRAYS = "sx.data.from_clients takes lists too"


def _check_features(features: object) -> None:
    """Real finite numbers, dense or in rows of nonzeros, each entry once."""
    if not isinstance(features, np.ndarray | sparse.csr_array):
        raise ScafflixError(
            f"features is {shown(features)}; give a NumPy array or a SciPy csr_array ({_ARRAYS})."
        )
    if features.dtype.kind not in "biuf" or features.dtype.itemsize > 8:
        raise ScafflixError(f"features has the type {features.dtype}; give real numbers.")
    if features.ndim < 2 or 0 in features.shape[1:]:
        raise ScafflixError(
            f"features has the shape {features.shape}; give rows of at least one feature."
        )
    if isinstance(features, np.ndarray):
        _check_finite("features", features)
        return
    if not features.has_canonical_format:
        raise ScafflixError("features holds an entry twice; call its sum_duplicates() first.")
    _check_finite("features", features.data)


def _check_labels(labels: object) -> None:
    """Real finite numbers, booleans or text."""
    instance("labels", labels, np.ndarray, f"a NumPy array ({_ARRAYS})")
    assert isinstance(labels, np.ndarray)
    if labels.dtype.kind not in "biufU" or (labels.dtype.kind != "U" and labels.dtype.itemsize > 8):
        raise ScafflixError(
            f"labels has the type {labels.dtype}; give real numbers, booleans or text."
        )
    if labels.dtype.kind == "f":
        _check_finite("labels", labels)


def _check_finite(name: str, values: NDArray[Any]) -> None:
    with np.errstate(over="ignore", invalid="ignore"):
        # a sum takes no memory, and is finite only if every number is
        finite = np.isfinite(values.sum()) or np.isfinite(values).all()
    if not finite:
        place = [int(i) for i in np.argwhere(~np.isfinite(values))[0]]
        raise ScafflixError(
            f"{name} holds {values[tuple(place)]} at {place} (from 0); give finite numbers."
        )


def _checked_offsets(offsets: object) -> NDArray[np.int64]:
    if isinstance(offsets, np.ndarray) and offsets.ndim == 1 and offsets.dtype.kind in "iu":
        return offsets.astype(np.int64, copy=False)
    raise ScafflixError(f"offsets is {shown(offsets)}; give a one-dimensional array of integers.")


def chosen_clients(clients: object, number: int, where: str = "") -> NDArray[np.int64]:
    """Indices of clients, checked."""
    chosen = numbers("clients", clients)
    if chosen.ndim != 1 or (chosen != np.rint(chosen)).any():
        raise ScafflixError(f"clients is {shown(clients)}; give a list of whole numbers.")
    outside = chosen[(chosen < 0) | (chosen >= number)]
    if len(outside):
        raise ScafflixError(
            f"There is no client {outside[0]:.0f}{where}; its clients are 0 to {number - 1}."
        )
    return chosen.astype(np.int64)
