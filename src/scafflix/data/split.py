"""Which client gets which row, where the data do not say so themselves.

Every rule returns ``client_of_row``; within a client the rows keep their order.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from scafflix.core.arguments import real_number, shown, whole_number
from scafflix.core.errors import ScafflixError
from scafflix.data.federation import Labels
from scafflix.data.partitioners import (
    Division,
    Flower,
    divided,
    made_partitioner,
    parse_partitioner,
)
from scafflix.data.streams import Stream, generator

MOST_CLASSES = 1000
"""With more distinct labels than this, labels are numbers to predict rather than classes."""


@dataclass(frozen=True)
class Contiguous:
    """The first client gets the first rows, and so on; parts differ by one row at most."""


@dataclass(frozen=True)
class Shuffled:
    """Parts as even as `Contiguous`, of rows drawn at random."""


@dataclass(frozen=True)
class Dirichlet:
    """Each class is shared out in proportions drawn from Dirichlet(beta, ..., beta).

    A small beta gives each client few classes, a large beta gives all the same mixture.
    """

    beta: float


@dataclass(frozen=True)
class Column:
    """The data name each row's client in a column."""

    name: str


@dataclass(frozen=True)
class Classes:
    """The data come with their clients, and each keeps this share of its classes."""

    share: float


Split = Contiguous | Shuffled | Dirichlet | Column | Classes | Flower


def parse_split(text: str) -> Split:
    """The rule that a user wrote.

    >>> parse_split("dirichlet:0.5")
    Dirichlet(beta=0.5)
    >>> parse_split("column:hospital")
    Column(name='hospital')
    """
    kind, colon, detail = text.partition(":") if isinstance(text, str) else ("", "", "")
    match kind, colon:
        case "contiguous", "":
            return Contiguous()
        case "shuffled", "":
            return Shuffled()
        case "dirichlet", ":":
            beta = _number(detail)
            return Dirichlet(real_number("The beta of split='dirichlet:BETA'", beta, above=True))
        case "classes", ":":
            where, share = "The share of split='classes:SHARE'", _number(detail)
            return Classes(real_number(where, share, above=True, below=1.0))
        case "column", ":" if detail:
            return Column(detail)
        case "flwr", ":":
            return parse_partitioner(detail)
    raise ScafflixError(
        f"split is {shown(text)}; give 'contiguous', 'shuffled', 'dirichlet:BETA' "
        "(as dirichlet:0.5), 'column:NAME', 'classes:SHARE' (as classes:0.33) or "
        "'flwr:PARTITIONER:KEY=VALUE,...'."
    )


def _number(word: str) -> float | str:
    """Or the word itself, to be refused as it was written."""
    try:
        return float(word)
    except ValueError:
        return word


def divide(
    rule: Contiguous | Shuffled | Dirichlet | Classes | Flower,
    labels: Labels,
    clients: int | None,
    seed: int,
    columns: Mapping[str, Labels] | None = None,
) -> Division:
    """Who gets which row, and what the clients are called; a partitioner may know how many there
    are, and go by other ``columns`` than the label."""
    if isinstance(rule, Flower):
        partitioner = made_partitioner(rule, clients, seed)
        made = divided(partitioner, {"label": labels, **(columns or {})}, len(labels))
        if clients is not None and len(made.clients) != clients:
            raise ScafflixError(
                f"clients is {clients}, but the partitioner {rule.name} makes "
                f"{len(made.clients)}; leave clients out."
            )
        return made
    if isinstance(rule, Classes):
        raise ScafflixError(
            f"split is 'classes:{rule.share:g}', which is for data that come with their clients; "
            "give another split."
        )
    number = whole_number("clients", clients, least=1)
    owners = assign(rule, labels, number, seed)
    return Division(owners, tuple(f"client-{i}" for i in range(number)))


def follow(
    division: Division, labels: Labels, others: Labels, random: np.random.Generator
) -> NDArray[np.int64]:
    """The client of each held-out row, so that every client's share of the rows with a label is
    that of the training rows with that label, up to one row.

    Labels that no training row has, and numbers to predict, go by the sizes of the clients.

    >>> made = Division(np.array([0, 0, 1]), ("a", "b"))
    >>> rows = follow(made, np.array([5, 5, 7]), np.array([7, 5, 5]), np.random.default_rng(0))
    >>> rows.tolist()
    [1, 0, 0]
    """
    clients = len(division.clients)
    held = division.owners >= 0
    owners, labels = division.owners[held], labels[held]
    if len(np.unique(labels)) > MOST_CLASSES:
        labels, others = np.zeros(len(labels)), np.zeros(len(others))
    sizes = np.bincount(owners, minlength=clients)
    made = np.empty(len(others), np.int64)
    for label in np.unique(others):
        rows = random.permutation(np.flatnonzero(others == label))
        counts = np.bincount(owners[labels == label], minlength=clients)
        ends = np.cumsum(counts if counts.any() else sizes)
        # evenly spaced from a random start, so that nobody is rounded up or down every time
        places = (random.random() + np.arange(len(rows))) / len(rows) * ends[-1]
        made[rows] = np.searchsorted(ends, places, side="right")
    return made


def assign(
    rule: Contiguous | Shuffled | Dirichlet, labels: Labels, clients: int, seed: int
) -> NDArray[np.int64]:
    """The client of each row; every client gets at least one."""
    random = generator(seed, Stream.SPLIT)
    match rule:
        case Contiguous():
            return contiguous(len(labels), clients)
        case Shuffled():
            return shuffled(len(labels), clients, random)
        case Dirichlet(beta):
            return dirichlet(labels, clients, beta, random)


def contiguous(rows: int, clients: int) -> NDArray[np.int64]:
    """Consecutive blocks, cut as `numpy.array_split` cuts.

    >>> contiguous(5, 2).tolist()
    [0, 0, 0, 1, 1]
    """
    check_clients(rows, clients)
    size, larger = divmod(rows, clients)
    sizes = np.where(np.arange(clients) < larger, size + 1, size)
    return np.repeat(np.arange(clients), sizes)


def shuffled(rows: int, clients: int, random: np.random.Generator) -> NDArray[np.int64]:
    """Blocks of the sizes of `contiguous`, of rows drawn at random.

    >>> sorted(shuffled(5, 2, np.random.default_rng(0)).tolist())
    [0, 0, 0, 1, 1]
    """
    return random.permutation(contiguous(rows, clients))


def dirichlet(
    labels: Labels, clients: int, beta: float, random: np.random.Generator
) -> NDArray[np.int64]:
    """The rows of each class in Dirichlet proportions, then one row for each empty client.

    An empty client takes the last row of the client that then has the most, so the result
    exists for every beta > 0 as soon as there are as many rows as clients.

    >>> dirichlet(np.array([0, 0, 1, 1]), 2, 1e8, np.random.default_rng(0)).tolist()
    [0, 1, 1, 0]
    """
    check_clients(len(labels), clients)
    client_of_row = np.empty(len(labels), dtype=np.int64)
    _, class_of_row = np.unique(labels, return_inverse=True)
    by_class = np.split(
        np.argsort(class_of_row, kind="stable"), np.cumsum(np.bincount(class_of_row))[:-1]
    )
    for rows in by_class:
        shares = dirichlet_shares(clients, beta, random)
        ends = np.rint(np.cumsum(shares) * len(rows)).astype(np.int64)
        ends[-1] = len(rows)  # the shares add up to one only up to rounding
        sizes = np.diff(np.minimum(ends, len(rows)), prepend=0)
        client_of_row[random.permutation(rows)] = np.repeat(np.arange(clients), sizes)
    return fill_empty_clients(client_of_row, clients)


def dirichlet_shares(clients: int, beta: float, random: np.random.Generator) -> NDArray[np.float64]:
    """A draw from Dirichlet(beta, ..., beta) that neither underflows nor overflows.

    Shares are normalized Gamma(beta) variables. For a tiny beta all of them underflow, so
    their logarithms are drawn: log Gamma(beta) = log Gamma(beta + 1) + log(U) / beta.
    """
    if beta >= 1.0:
        logarithms = np.log(random.standard_gamma(beta, clients))
        logarithms -= logarithms.max()
    else:
        uniform = 1.0 - random.random(clients)  # in (0, 1], so that the logarithm is finite
        scaled = beta * np.log(random.standard_gamma(beta + 1.0, clients)) + np.log(uniform)
        # The largest is subtracted before the division, which may overflow to -inf: a share of 0.
        with np.errstate(over="ignore"):
            logarithms = (scaled - scaled.max()) / beta
    weights = np.exp(logarithms)
    shares: NDArray[np.float64] = weights / weights.sum()
    return shares


def fill_empty_clients(client_of_row: NDArray[np.int64], clients: int) -> NDArray[np.int64]:
    """Give each empty client the last row of the client that has the most.

    >>> fill_empty_clients(np.array([0, 0, 0]), 2).tolist()
    [0, 0, 1]
    """
    counts = np.bincount(client_of_row, minlength=clients)
    empty = np.flatnonzero(counts == 0)
    if len(empty) == 0:
        return client_of_row
    order = np.argsort(client_of_row, kind="stable")
    ends = np.cumsum(counts)
    filled = client_of_row.copy()
    largest = [(-int(count), client) for client, count in enumerate(counts) if count > 0]
    heapq.heapify(largest)
    for client in empty:
        negative, giver = heapq.heappop(largest)
        ends[giver] -= 1
        filled[order[ends[giver]]] = client
        heapq.heappush(largest, (negative + 1, giver))
    return filled


def check_clients(rows: int, clients: int) -> None:
    """Refuse a number of clients that the rows cannot serve."""
    if whole_number("clients", clients, least=1) > rows:
        raise ScafflixError(
            f"clients is {clients}, but there are only {rows} rows; give at most {rows}."
        )
