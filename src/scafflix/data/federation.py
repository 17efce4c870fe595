"""Who has what: the examples of every client, packed into a few arrays."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from scafflix.data.identity import check_ids
from scafflix.errors import ScafflixError

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
        rows = self.features.shape[0]
        if self.labels.ndim not in (1, 2) or self.labels.shape[0] != rows:
            raise ScafflixError(
                f"There are {rows} rows of features but labels of shape {self.labels.shape}; "
                "give one label, or one sequence of labels, per row."
            )
        if self.offsets[0] != 0 or self.offsets[-1] != rows or (np.diff(self.offsets) < 0).any():
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
        chosen = np.asarray(clients, dtype=np.int64)
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

    def __post_init__(self) -> None:
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

    @property
    def dim(self) -> int:
        """The number of features: of an image, its pixels; of a sequence, its places."""
        return math.prod(self.train.features.shape[1:])

    @property
    def parts(self) -> dict[str, Examples]:
        """The parts that there are, by name: train, then test and validation."""
        every = {"train": self.train, "test": self.test, "validation": self.validation}
        return {name: part for name, part in every.items() if part is not None}

    def take(self, clients: Sequence[int] | NDArray[np.int64]) -> Federation:
        """The federation of the chosen clients only, in that order.

        >>> from scafflix.data import from_clients
        >>> fed = from_clients({"a": ([[1.0]], [0]), "b": ([[2.0]], [1]), "c": ([[3.0]], [0])})
        >>> fed.take([2, 0]).train.features.tolist()
        [[3.0], [1.0]]
        """
        for i in clients:
            if not 0 <= i < len(self.clients):
                raise ScafflixError(
                    f"There is no client {i} in '{self.name}'; "
                    f"its clients are 0 to {len(self.clients) - 1}."
                )
        parts = {name: part.take(clients) for name, part in self.parts.items()}
        return replace(self, clients=tuple(self.clients[i] for i in clients), **parts)  # type: ignore[arg-type]
