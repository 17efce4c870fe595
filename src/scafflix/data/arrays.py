"""From arrays in memory to a Federation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from scafflix.core.arguments import flag, shown
from scafflix.core.errors import ScafflixError
from scafflix.data.admission import admit_column, admit_features, admit_labels, as_array
from scafflix.data.classes import keep_classes
from scafflix.data.federation import Examples, Features, Federation, Labels
from scafflix.data.holdout import check_fraction, hold_out
from scafflix.data.identity import client_name
from scafflix.data.partitioners import NOBODY, Division
from scafflix.data.scaling import append_intercept, check_scale, rescale
from scafflix.data.split import Classes, Column, divide, parse_split
from scafflix.data.streams import Stream, generator
from scafflix.data.threshold import NO_TRAINING_ROWS, check_threshold, leave_out

Client = TypeVar("Client")

Part = tuple[object, ArrayLike]
"""The features (an array or a sparse matrix) and the labels of one client."""


def from_arrays(
    features: object,
    labels: ArrayLike,
    clients: int | ArrayLike | None,
    *,
    split: str | None = None,
    test: float = 0.0,
    validation: float = 0.0,
    min_examples: int | None = None,
    seed: int = 0,
    name: str = "arrays",
    intercept: bool = False,
    scale: str = "none",
) -> Federation:
    """A federation of rows, given to ``clients``: a number of clients, or an id for each row.

    A number goes with ``split``: "contiguous" (the default), "shuffled", "dirichlet:BETA" or
    "flwr:PARTITIONER:KEY=VALUE,..."; where a partitioner knows the number itself, give None.
    Ids become the clients' names, in order of first appearance; their rows are gathered. With
    ``split="classes:SHARE"`` each client keeps that share of its classes.
    The other arguments are those of `scafflix.data.load`.

    >>> fed = from_arrays([[1.0], [2.0], [3.0]], [0, 1, 0], ["b", "a", "b"])
    >>> fed.clients, fed.train.features.ravel().tolist()
    (('b', 'a'), [1.0, 3.0, 2.0])
    >>> from_arrays([[1.0], [2.0], [3.0]], [0, 1, 0], 2).clients
    ('client-0', 'client-1')
    """
    wanted = Preparation(test, validation, min_examples, seed, intercept, scale).of_arrays()
    matrix = admit_features(features)
    targets = admit_labels(labels, matrix.shape[0])
    if as_array(clients, "clients").ndim == 0:
        rule = parse_split("contiguous" if split is None else split)
        if isinstance(rule, Column):
            raise ScafflixError(
                f"split is {split!r}, but arrays have no named columns; "
                "give the client ids of the rows as clients."
            )
        division = divide(rule, targets, clients, seed)  # type: ignore[arg-type]
        federation = pack(name, matrix, targets, division)
    else:
        some = None if split is None else parse_split(split)
        if not isinstance(some, Classes | None):
            raise ScafflixError(
                f"split is {split!r}, but clients names the client of each row; give one of them."
            )
        division = Division(
            *group(admit_labels(cast(ArrayLike, clients), matrix.shape[0], "clients"))
        )
        federation = pack(name, matrix, targets, division)
        if some is not None:
            federation = keep_classes(federation, some, seed)
    return prepare(federation, wanted)


@dataclass(frozen=True)
class Preparation:
    """What is done to a federation after its rows have found their clients."""

    test: float = 0.0
    validation: float = 0.0
    min_examples: int | None = None
    seed: int = 0
    intercept: bool | None = False  # None: as the kind of data has it
    scale: str = "none"  # also auto: as the kind of data has it

    def __post_init__(self) -> None:
        """Whatever a user may have mistyped is refused before data are read."""
        check_fraction("test", self.test)
        check_fraction("validation", self.validation)
        check_threshold(self.min_examples)
        generator(self.seed, Stream.SPLIT)
        if self.intercept is not None:
            flag("intercept", self.intercept)
        if self.scale != "auto":
            check_scale(self.scale)

    def of_arrays(self) -> Preparation:
        """The same, if nothing is left open."""
        check_scale(self.scale)
        flag("intercept", self.intercept)
        return self

    def settled(self, table: bool) -> Preparation:
        """What was left open, decided: tables are standardized and get an intercept."""
        return replace(
            self,
            intercept=table if self.intercept is None else self.intercept,
            scale=("standard" if table else "none") if self.scale == "auto" else self.scale,
        )


def prepare(federation: Federation, wanted: Preparation) -> Federation:
    """Divide, scale by the training rows, append the intercept."""
    scaled = rescale(set_aside(federation, wanted), wanted.scale)
    return append_intercept(scaled) if wanted.intercept else scaled


def set_aside(federation: Federation, wanted: Preparation) -> Federation:
    """Hold out test, then validation rows, and leave out clients that are then too small."""
    divided = hold_out(federation, wanted.test, wanted.seed)
    divided = hold_out(divided, wanted.validation, wanted.seed, "validation")
    return leave_out(divided, wanted.min_examples)


def from_clients(
    examples: Mapping[object, Part],
    *,
    held_out: Mapping[object, Part] | None = None,
    name: str = "clients",
) -> Federation:
    """A federation from each client's own features and labels.

    ``held_out`` gives test examples in the same form; clients without any may be left out.

    >>> fed = from_clients({"a": ([[1.0]], [0]), 7: ([[2.0]], [1])}, held_out={7: ([[3.0]], [1])})
    >>> fed.clients, fed.test.counts.tolist()
    (('a', '7'), [0, 1])
    """
    given_parts = {"examples": examples, "held_out": {} if held_out is None else held_out}
    for where, given in given_parts.items():
        if not isinstance(given, Mapping):
            raise ScafflixError(
                f"{where} is {shown(given)}; give a dictionary from clients to (features, labels)."
            )
    if not examples:
        raise ScafflixError(f"The federation '{name}' has no clients; give at least one.")
    train = join({client: admit_part(client, part) for client, part in examples.items()})
    if held_out is None:
        return Federation(name, tuple(str(client) for client in examples), train)
    strangers = [client for client in held_out if client not in examples]
    if strangers:
        raise ScafflixError(
            f"Client {str(strangers[0])!r} has held-out examples but no training examples; "
            "leave it out."
        )
    admitted = {client: admit_part(client, part) for client, part in held_out.items()}
    test = join_held_out(admitted, list(examples), train)
    return Federation(name, tuple(str(client) for client in examples), train, test)


def join_held_out(
    parts: Mapping[Client, tuple[Features, Labels]], clients: Sequence[Client], train: Examples
) -> Examples:
    """The held-out examples of the clients one after the other; some may have none."""
    shape = train.features.shape[1:]
    for client, (features, _) in parts.items():
        if features.shape[1:] != shape:
            raise ScafflixError(
                f"Client {str(client)!r} has {by(features.shape[1:])} features held out, but "
                f"{by(shape)} to train on; give all the same."
            )
    nothing = (train.features[:0], train.labels[:0])
    return join({client: parts.get(client, nothing) for client in clients})


def admit_part(client: object, part: Part) -> tuple[Features, Labels]:
    """The checked features and labels of one client."""
    if not isinstance(part, tuple | list) or len(part) != 2:
        raise ScafflixError(f"Client {str(client)!r}: give a pair (features, labels).")
    features = admit_features(part[0], f"Client {str(client)!r}, features")
    where = f"Client {str(client)!r}, labels"
    return features, admit_labels(part[1], features.shape[0], where)


def join(parts: Mapping[Client, tuple[Features, Labels]]) -> Examples:
    """The examples of the clients one after the other."""
    first, (head, head_labels) = next(iter(parts.items()))
    for client, (features, labels) in parts.items():
        if features.shape[1:] != head.shape[1:]:
            raise ScafflixError(
                f"Client {str(client)!r} has {by(features.shape[1:])} features, but client "
                f"{str(first)!r} has {by(head.shape[1:])}; give all the same."
            )
        # NumPy would silently turn the numbers into text.
        if (labels.dtype.kind == "U") != (head_labels.dtype.kind == "U"):
            raise ScafflixError(
                f"Client {str(client)!r} has labels of type {labels.dtype}, but client "
                f"{str(first)!r} has {head_labels.dtype}; give all numbers or all text."
            )
    blocks = [features for features, _ in parts.values()]
    dense = [block for block in blocks if isinstance(block, np.ndarray)]
    features = (
        np.concatenate(dense)
        if len(dense) == len(blocks)
        else sparse.csr_array(sparse.vstack([sparse.csr_array(b) for b in blocks], format="csr"))
    )
    labels = np.concatenate([labels for _, labels in parts.values()])
    counts = [block.shape[0] for block in blocks]
    return Examples(features, labels, np.concatenate([[0], np.cumsum(counts)]).astype(np.int64))


def by(shape: tuple[int, ...]) -> str:
    """A shape in words: 784, or 28 x 28."""
    return " x ".join(map(str, shape))


def group(ids: ArrayLike, where: str = "clients") -> tuple[NDArray[np.int64], tuple[str, ...]]:
    """The client of each row and the clients' names, in order of first appearance.

    >>> owners, names = group([3.0, 1.5, 3.0])
    >>> owners.tolist(), names
    ([0, 1, 0], ('3', '1.5'))
    """
    found, first, inverse = np.unique(
        admit_column(ids, where), return_index=True, return_inverse=True
    )
    appearance = np.argsort(first)
    position = np.empty(len(found), dtype=np.int64)
    position[appearance] = np.arange(len(found))
    return position[inverse], tuple(client_name(value) for value in found[appearance].tolist())


def pack(name: str, features: Features, labels: Labels, division: Division) -> Federation:
    """Gather each client's rows, keeping their order; clients without rows are left out."""
    owners, clients = division
    order = np.argsort(owners, kind="stable")[np.count_nonzero(owners == NOBODY) :]
    counts = np.bincount(owners[order], minlength=len(clients))
    there = np.flatnonzero(counts)
    offsets = np.concatenate([[0], np.cumsum(counts[there])]).astype(np.int64)
    left_out = {clients[i]: NO_TRAINING_ROWS for i in np.flatnonzero(counts == 0).tolist()}
    examples = Examples(features[order], labels[order], offsets)
    return Federation(name, tuple(clients[i] for i in there), examples, left_out=left_out)
