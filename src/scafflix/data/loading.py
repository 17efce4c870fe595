"""From a name or a file to a Federation."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from scafflix.core.arguments import shown, whole_number
from scafflix.core.errors import ScafflixError
from scafflix.data.arrays import Preparation, from_arrays, prepare
from scafflix.data.arrow import read_splits
from scafflix.data.classes import keep_classes
from scafflix.data.federation import Federation
from scafflix.data.origin import Origin, resolve
from scafflix.data.partitioners import Flower
from scafflix.data.reading import read, read_people
from scafflix.data.recognition import TABLES
from scafflix.data.rows import Rows
from scafflix.data.split import Classes, Column, parse_split
from scafflix.data.synthesis import parse_synthetic, synthetic
from scafflix.data.table import open_table
from scafflix.data.tabular import (
    Columns,
    TableOptions,
    first_change,
    prepare_table,
    read_columns,
    table_options,
)


def load(
    source: str | Path,
    *,
    clients: int | None = None,
    split: str | None = None,
    test: float = 0.0,
    validation: float = 0.0,
    min_examples: int | None = None,
    seed: int = 0,
    features: int | None = None,
    label: str | None = None,
    categorical: Sequence[str] = (),
    drop: Sequence[str] = (),
    missing: str = "fill",
    missing_as: Sequence[str] = (),
    unknown: str = "other",
    intercept: bool | None = None,
    scale: str = "auto",
) -> Federation:
    """The federation of a known data set, of made-up data or of a file.

    ``source`` is

    - a name of `scafflix.data.known`, found as `locate` says or else fetched once;
    - ``synthetic`` or ``synthetic:optima=2,rows=50,...``, see `scafflix.data.synthetic`;
    - a table: a ``.csv``, ``.tsv`` or ``.parquet`` file, or a folder of them, each file a client;
    - another file: ``.npz`` with arrays ``features`` (``x``), ``labels`` (``y``) and maybe
      ``client``; anything else is svmlight text, compressed if it ends in .bz2, .xz or .gz. A text
      that is both a name and a file is the name; write ``./name`` or a `Path` for the file;
    - ``hf:FOLDER``: a data set of Hugging Face's `datasets` that was saved to the disk, or a folder
      of Parquet or Arrow files, see `scafflix.data.huggingface`. ``hf:OWNER/NAME`` is one of the
      hub, after `scafflix.data.fetch` has downloaded it; nothing else opens a connection;
    - a file or folder whose clients are people, as `scafflix.data.recognition` lists: LEAF JSON,
      the SQLite release of FedJAX, an ``.npz`` of writers, a ``.jsonl`` of speaking roles. The
      names ``femnist`` and ``shakespeare`` are such data.

    ``split`` says who gets which rows: ``contiguous`` (the default), ``shuffled`` and
    ``dirichlet:BETA`` need a number of ``clients``; ``column:NAME`` takes the clients from a
    table's column, from an archive's array ``client``, or from a feature of svmlight or
    scikit-learn data by its index from 1, which is then no feature any more;
    ``flwr:PARTITIONER:KEY=VALUE,...`` is a partitioner of flwr-datasets, such as
    ``flwr:pathological:num_classes_per_partition=2``. An archive with an
    array ``client`` is split by it when neither ``split`` nor ``clients`` is given. Where clients
    are people, ``clients=N`` takes the first N that are not left out, and the only ``split`` is
    ``classes:SHARE``. That is for data that come with their clients (people, such an archive, a
    folder of tables): each keeps the examples of that share of its classes, drawn with ``seed``, at
    least one class, in all its parts.

    ``test`` is the fraction of each client's rows to hold out; it must be 0 where the source
    brings a test part of its own. ``validation`` is the fraction of the rows then left for
    training to hold out for validation. With ``min_examples``, a client is left out that has
    fewer training rows than that after this division, or no test row where there is a test part,
    or no validation row where there is a validation part. Clients without a training row are
    left out always. ``federation.left_out`` lists who was left out and why.

    ``features`` declares the number of features of svmlight text. ``scale`` is ``none``, ``maxabs``
    or ``standard``, computed from the training rows; ``intercept`` appends a feature that is 1
    everywhere. Left out, tables are standardized and get an intercept, other data stay as they are.

    The rest is for tables, ``label`` and ``drop`` also for ``hf:``;
    `scafflix.data.preprocessing` says how columns become features.
    ``label`` is the label column (otherwise ``label``, ``target`` or ``y``), or ``COLUMN>NUMBER``
    for two classes. ``categorical`` lists columns of numbers that stand for kinds, ``drop`` columns
    that are no features. ``missing`` is ``fill`` or ``refuse``; ``missing_as`` lists words that
    mean a missing value, such as ``?`` or ``-9``. ``unknown`` says what a text is that no training
    row has: ``other``, or ``refuse``.

    >>> fed = load("iris", clients=3, split="shuffled", test=0.2)
    >>> fed.clients, fed.train.counts.tolist(), fed.test.counts.tolist(), fed.dim
    (('client-0', 'client-1', 'client-2'), [40, 40, 40], [10, 10, 10], 4)
    >>> load("synthetic:rows=5,features=2", clients=4).train.features.shape
    (20, 2)
    """
    # Everything a user may have mistyped is checked before a file is read or fetched.
    wanted = Preparation(test, validation, min_examples, seed, intercept, scale)
    options = table_options(label, categorical, drop, missing, missing_as, unknown)
    if clients is not None:
        whole_number("clients", clients, least=1)
    if split is not None:
        parse_split(split)

    origin = resolve(source)
    check_options(origin, options, features)
    if origin.kind == "synthetic":
        if split is not None:
            raise ScafflixError(
                f"split is {split!r}, but synthetic data come with their clients; leave split out."
            )
        return prepare(make_synthetic(origin.options, clients, seed), wanted.settled(table=False))
    with naming(origin):
        if origin.kind == "huggingface":
            # imported here, since it is made of what is below
            from scafflix.data.huggingface import federation_of

            assert origin.path is not None
            tables = read_splits(origin.path)
            return federation_of(tables, origin, options, wanted, clients, split)
        settled = wanted.settled(table=origin.kind == "table")
        return load_file(origin, settled, clients, split, features, options)


def check_options(origin: Origin, options: TableOptions, features: int | None) -> None:
    """Refuse what is for another kind of data."""
    if origin.kind not in ("table", "huggingface") and options != TableOptions():
        raise ScafflixError(
            f"{first_change(options)}, but {origin} is not a table, a file that ends in "
            f"{', '.join(TABLES)}; give one, or leave it out."
        )
    if features is not None and origin.kind != "svmlight":
        raise ScafflixError(
            f"features is {shown(features)}, but {origin} is not svmlight text; leave features out."
        )


@contextmanager
def naming(origin: Origin) -> Iterator[None]:
    """Whatever is wrong with the data, the sentence says which."""
    try:
        yield
    except ScafflixError as error:
        if str(origin) in str(error):
            raise
        raise ScafflixError(f"{origin}: {error}") from error


def load_file(
    origin: Origin,
    wanted: Preparation,
    clients: int | None,
    split: str | None,
    features: int | None,
    options: TableOptions,
) -> Federation:
    """The federation of a known data set or of a file, its arguments checked."""
    seed, rule = wanted.seed, None if split is None else parse_split(split)
    if origin.kind == "people":
        if not isinstance(rule, Classes | None):
            raise ScafflixError(
                f"split is {split!r}, but {origin} comes with its clients; leave split out, or "
                "give 'classes:SHARE'."
            )
        people = read_people(origin, wanted.test)
        some = people if rule is None else keep_classes(people, rule, seed)
        return first(clients, prepare(some, wanted))

    column = rule.name if isinstance(rule, Column) else None
    partitioner = isinstance(rule, Flower)  # which may know how many clients there are
    if origin.kind == "table":
        columns, rows = read_table(origin, split, options)
    elif clients is None and column is None and not partitioner and origin.kind != "archive":
        raise how_many_clients(origin)
    else:
        columns, rows = None, read(origin, features, column)
    federation = share_out(rows, origin, clients, split, seed)
    return (
        prepare(federation, wanted)
        if columns is None
        else prepare_table(columns, federation, wanted)
    )


def read_table(origin: Origin, split: str | None, options: TableOptions) -> tuple[Columns, Rows]:
    """The columns of a table that are features, and its rows, with their clients if a column or a
    folder of files says so."""
    assert origin.path is not None
    rule = None if split is None else parse_split(split)
    column = rule.name if isinstance(rule, Column) else None
    known = {} if column is None else {column: "text"}  # client 007 is not client 7
    return read_columns(open_table(origin.path, known, options.missing_as), options, column)


def share_out(
    rows: Rows, origin: Origin, clients: int | None, split: str | None, seed: int
) -> Federation:
    """The rows given to their clients."""
    rule = None if split is None else parse_split(split)
    named = rows.clients is not None and isinstance(rule, Classes | None) and clients is None
    if isinstance(rule, Column) or named:
        assert rows.clients is not None
        some = split if isinstance(rule, Classes) else None
        federation = from_arrays(
            rows.features, rows.labels, rows.clients, split=some, seed=seed, name=origin.name
        )
    elif clients is not None or isinstance(rule, Flower):
        return from_arrays(
            rows.features, rows.labels, clients, split=split, seed=seed, name=origin.name
        )
    else:
        raise how_many_clients(origin)
    if clients is not None and len(federation.clients) != clients:
        raise ScafflixError(
            f"clients is {clients}, but {split} of {origin} names "
            f"{len(federation.clients)} clients; leave clients out."
        )
    return federation


def how_many_clients(origin: Origin) -> ScafflixError:
    """The error for data whose clients nobody has told."""
    return ScafflixError(
        f"{origin} does not say whose rows are whose; give a number of clients, "
        "or split='column:NAME'."
    )


def first(clients: int | None, federation: Federation) -> Federation:
    """The federation of its first clients, so many as asked for."""
    if clients is None or clients == len(federation.clients):
        return federation
    if clients > len(federation.clients):
        raise ScafflixError(
            f"clients is {clients}, but {federation.name} has {len(federation.clients)} "
            f"({len(federation.left_out)} left out); ask for fewer."
        )
    return federation.take(range(clients))


def make_synthetic(options: str, clients: int | None, seed: int) -> Federation:
    """The made-up federation of the options, with the number of clients from either side."""
    arguments = parse_synthetic(options)
    if clients is not None and arguments.setdefault("clients", clients) != clients:
        raise ScafflixError(
            f"clients is {clients}, but the source says clients={arguments['clients']}; "
            "give one of them."
        )
    return synthetic(**arguments, seed=seed)  # type: ignore[arg-type]
