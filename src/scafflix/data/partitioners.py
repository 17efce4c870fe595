"""Divisions of rows by the partitioners of flwr-datasets (`scafflix[huggingface]`).

By name they are found in that library: ``flwr:dirichlet:alpha=0.3`` is its DirichletPartitioner.
Nothing here opens a connection: a partitioner gets the labels of rows that are here.
"""

from __future__ import annotations

import copy
import inspect
import io
import re
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, redirect_stderr
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from scafflix.core.arguments import shown
from scafflix.core.errors import ScafflixError, ScafflixWarning, reason_of
from scafflix.core.extras import library
from scafflix.core.specs import number_or_word
from scafflix.data.federation import Labels
from scafflix.data.identity import client_name

ROW = "row of scafflix"  # the column by which a partition tells its rows
LABEL = "label"
NOBODY = -1  # the owner of a row that a partitioner gives to nobody


class Flower(NamedTuple):
    """A partitioner in words: its name, and its arguments besides those that are known here."""

    name: str
    options: dict[str, Any]


class Division(NamedTuple):
    """Who has which row."""

    owners: NDArray[np.int64]  # NOBODY for a row that nobody has
    clients: tuple[str, ...]


def parse_partitioner(words: str) -> Flower:
    """The partitioner in ``NAME:KEY=VALUE,...``; several values are joined by ``+``.

    >>> parse_partitioner("inner_dirichlet:alpha=0.3,partition_sizes=20+30")
    Flower(name='inner_dirichlet', options={'alpha': 0.3, 'partition_sizes': [20, 30]})
    """
    name, _, rest = words.partition(":")
    options: dict[str, Any] = {}
    for word in filter(None, rest.split(",")):
        key, equals, value = (part.strip() for part in word.partition("="))
        if not equals or not value or key in options:
            raise ScafflixError(
                f"split is {shown('flwr:' + words)}; give the arguments of the partitioner as "
                "KEY=VALUE,..."
            )
        # an exponent may have a plus too, so only whole numbers are joined by one
        parts = value.split("+")
        several = len(parts) > 1 and all(part.isdecimal() for part in parts)
        options[key] = [int(part) for part in parts] if several else _value(value)
    if not name:
        raise ScafflixError(
            "split is 'flwr:'; name a partitioner of flwr-datasets, as in flwr:dirichlet:alpha=0.3."
        )
    return Flower(name, options)


def _value(word: str) -> Any:
    return {"true": True, "false": False}.get(word.lower(), number_or_word(word))


def made_partitioner(asked: Flower, clients: int | None, seed: int) -> Any:
    """The library's object; the number of clients, the label and the seed are filled in."""
    known = _known()
    kind = {_short(name): one for name, one in known.items()}.get(_short(asked.name))
    if kind is None:
        raise ScafflixError(
            f"flwr-datasets has no partitioner {asked.name!r}; it has {', '.join(sorted(known))}."
        )
    parameters = inspect.signature(kind).parameters
    for key in asked.options:
        if key not in parameters:
            raise ScafflixError(
                f"The partitioner {asked.name} has no {key}; it has {', '.join(parameters)}."
            )
    filled = {"num_partitions": clients, "seed": seed, "partition_by": LABEL}
    options = {
        name: value for name, value in filled.items() if name in parameters and value is not None
    } | asked.options
    if clients is not None and options.get("num_partitions", clients) != clients:
        raise ScafflixError(
            f"clients is {clients}, but the split says num_partitions="
            f"{options['num_partitions']}; give one of them."
        )
    needed = [
        name for name, one in parameters.items() if one.default is one.empty and name not in options
    ]
    if needed:
        also = " (or clients)" if needed[0] == "num_partitions" else ""
        raise ScafflixError(f"The partitioner {asked.name} needs {needed[0]}{also}; give it.")
    try:
        return kind(**options)
    except Exception as error:  # whatever the library says of a value
        raise ScafflixError(f"The partitioner {asked.name}: {reason_of(error)}.") from error


def divided(partitioner: Any, columns: Mapping[str, Labels], rows: int) -> Division:
    """Who gets which row. ``columns`` are those that the partitioner may go by."""
    check_partitioner(partitioner)
    what = f"The partitioner {type(partitioner).__name__}"
    datasets = library("datasets", "huggingface")
    table = {name: values.tolist() for name, values in columns.items()}
    table[ROW] = list(range(rows))
    by = getattr(partitioner, "_partition_by", None)
    if isinstance(by, str) and by not in columns:
        raise ScafflixError(
            f"{what} goes by a column {by!r}; the columns are {', '.join(map(repr, columns))}."
        )
    mine = copy.deepcopy(partitioner)
    owners = np.full(rows, NOBODY, np.int64)
    try:
        with _speaking_as_we_do():
            mine.dataset = datasets.Dataset.from_dict(table)
            count = int(mine.num_partitions)
            for client in range(count):
                owners[np.asarray(mine.load_partition(client)[ROW], np.int64)] = client
    except Exception as error:  # whatever the library says of these rows
        raise ScafflixError(f"{what}: {reason_of(error)}.") from error
    natural = getattr(mine, "partition_id_to_natural_id", None) or {}
    names = [client_name(natural.get(i, f"client-{i}")) for i in range(count)]
    return Division(owners, tuple(names))


@contextmanager
def _speaking_as_we_do() -> Iterator[None]:
    """What the library has to say of a division, such as classes that nobody gets, as a warning of
    ours; its bars are not shown."""
    with warnings.catch_warnings(record=True) as said, redirect_stderr(io.StringIO()):
        warnings.simplefilter("always")
        yield
    for one in said:
        if one.category is UserWarning:
            sentence = f"flwr-datasets says: {reason_of(Warning(one.message))}."
            warnings.warn(sentence, ScafflixWarning, stacklevel=4)


def check_partitioner(partitioner: Any) -> None:
    """Refuse what does not divide rows as flwr-datasets' partitioners do."""
    if not hasattr(type(partitioner), "load_partition"):
        raise ScafflixError(
            f"by is {shown(partitioner)}; give the name of a column or a partitioner of "
            "flwr-datasets."
        )
    if _is_vertical(type(partitioner)):
        raise ScafflixError(
            f"{type(partitioner).__name__} divides columns; give a partitioner that divides rows."
        )
    assigned = getattr(partitioner, "is_dataset_assigned", None)
    if assigned is not None and assigned():
        raise ScafflixError(
            f"The partitioner {type(partitioner).__name__} has a data set already; give a new one."
        )


def names_clients(partitioner: Any) -> bool:
    """Whether the column that a partitioner, or one in words, goes by says whose row it is.

    >>> names_clients(Flower("natural_id", {})), names_clients(Flower("dirichlet", {}))
    (True, False)
    """
    named = isinstance(partitioner, Flower)
    name = partitioner.name if named else type(partitioner).__name__
    return "naturalid" in _short(name)


def _known() -> dict[str, type[Any]]:
    """The library's partitioners of rows, by their short names."""
    module = library("flwr_datasets.partitioner", "huggingface")
    found = {name: kind for name, kind in vars(module).items() if inspect.isclass(kind)}
    return {
        re.sub(r"(?<!^)(?=[A-Z])", "_", name.removesuffix("Partitioner")).lower(): kind
        for name, kind in found.items()
        if hasattr(kind, "load_partition")
        and not inspect.isabstract(kind)
        and not _is_vertical(kind)
    }


def _is_vertical(kind: type[Any]) -> bool:
    return kind.__name__.startswith("Vertical")


def _short(name: str) -> str:
    """One spelling of a partitioner's name.

    >>> _short("InnerDirichletPartitioner"), _short("inner_dirichlet"), _short("natural-id")
    ('innerdirichlet', 'innerdirichlet', 'naturalid')
    """
    return name.lower().replace("_", "").replace("-", "").removesuffix("partitioner")
