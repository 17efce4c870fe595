"""Who has what: the examples of every client, packed into a few arrays."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from scafflix.errors import ScafflixError

Features = NDArray[np.float64] | sparse.csr_array
Labels = NDArray[np.generic]


@dataclass(frozen=True, eq=False)
class Examples:
    """Examples of consecutive clients: client i owns rows ``offsets[i]:offsets[i + 1]``.

    Labels stay as they were found (numbers or strings); a model gives them a meaning.
    """

    features: Features  # [rows, dim]
    labels: Labels  # [rows]
    offsets: NDArray[np.int64]  # [clients + 1]

    def __post_init__(self) -> None:
        rows = self.features.shape[0]
        if self.labels.shape != (rows,):
            raise ScafflixError(
                f"There are {rows} rows of features but labels of shape {self.labels.shape}; "
                "give one label per row."
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
    """The clients of a federation, their training examples and their test examples.

    >>> from scafflix.data import from_clients
    >>> fed = from_clients({"a": ([[1.0], [2.0]], [0, 1]), "b": ([[3.0]], [1])})
    >>> fed.clients, fed.train.counts.tolist(), fed.dim
    (('a', 'b'), [2, 1], 1)
    """

    name: str
    clients: tuple[str, ...]
    train: Examples
    test: Examples | None = None

    def __post_init__(self) -> None:
        if not self.clients:
            raise ScafflixError(f"The federation '{self.name}' has no clients; give at least one.")
        for part in (self.train, self.test):
            if part is not None and len(part.counts) != len(self.clients):
                raise ScafflixError(
                    f"The federation '{self.name}' has {len(self.clients)} clients but examples "
                    f"of {len(part.counts)}; give the examples of each client."
                )
        if self.test is not None and self.test.features.shape[1] != self.dim:
            raise ScafflixError(
                f"The federation '{self.name}' has {self.dim} training features but "
                f"{self.test.features.shape[1]} test features; give the same number."
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
        """The number of features."""
        return int(self.train.features.shape[1])

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
        return Federation(
            self.name,
            tuple(self.clients[i] for i in clients),
            self.train.take(clients),
            None if self.test is None else self.test.take(clients),
        )
