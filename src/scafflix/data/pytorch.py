"""Data sets of PyTorch with a list that says whose example each is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from scafflix.core.arguments import shown
from scafflix.core.errors import ScafflixError
from scafflix.core.own_code import fault_in
from scafflix.data.admission import admit_column, as_array, check_numeric
from scafflix.data.arrays import Preparation, by, group, pack, prepare
from scafflix.data.federation import Examples, Federation, Labels
from scafflix.data.partitioners import Division


def from_torch(
    dataset: Any,
    owners: ArrayLike,
    *,
    held_out: tuple[Any, ArrayLike] | None = None,
    test: float = 0.0,
    validation: float = 0.0,
    min_examples: int | None = None,
    seed: int = 0,
    intercept: bool = False,
    scale: str = "none",
    name: str = "torch",
) -> Federation:
    """The federation of a `torch.utils.data.Dataset` of pairs (example, label).

    ``owners`` says whose each example is. ``held_out`` is another data set with its owners, which
    becomes the test part. Examples are taken once, in order, and stay in the type and shape that
    they have; what a data set does at random, it does only then. The other arguments are those of
    `scafflix.data.load`.
    """
    wanted = Preparation(test, validation, min_examples, seed, intercept, scale).of_arrays()
    examples, labels, who = _admitted(dataset, owners, "the data set")
    division = Division(*group(who, "owners"))
    federation = pack(name, examples, labels, division)
    if held_out is not None:
        if test > 0.0:
            raise ScafflixError(f"test is {test:g}, but held_out is the test part; leave test out.")
        if not isinstance(held_out, tuple | list) or len(held_out) != 2:
            raise ScafflixError(f"held_out is {shown(held_out)}; give a pair (data set, owners).")
        federation = _with_test(federation, *_admitted(*held_out, "held_out"))
    return prepare(federation, wanted)


def _with_test(
    federation: Federation, examples: NDArray[Any], labels: Labels, who: Labels
) -> Federation:
    place = {client: number for number, client in enumerate(federation.clients)}
    found, names = group(who, "owners of held_out")
    strangers = [client for client in names if client not in place]
    if strangers:
        raise ScafflixError(
            f"Client {strangers[0]!r} has held-out examples but no training examples; leave it out."
        )
    owners = np.array([place[client] for client in names])[found]
    order = np.argsort(owners, kind="stable")
    counts = np.bincount(owners, minlength=len(place))
    offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    test = Examples(examples[order], labels[order], offsets)
    return Federation(federation.name, federation.clients, federation.train, test)


def _admitted(
    dataset: Any, owners: ArrayLike, where: str
) -> tuple[NDArray[Any], Labels, NDArray[Any]]:
    """Examples, labels and owners, one of each for every row."""
    if not hasattr(dataset, "__getitem__") or not hasattr(dataset, "__len__"):
        raise ScafflixError(
            f"{where} is {shown(dataset)}; give a torch.utils.data.Dataset with a length."
        )
    rows = len(dataset)
    who = admit_column(owners, "owners")
    if len(who) != rows:
        raise ScafflixError(
            f"There are {len(who)} owners for the {rows} examples of {where}; give one for each."
        )
    if rows == 0:
        raise ScafflixError(f"{where} has no examples; give at least one.")
    tensors = getattr(dataset, "tensors", None)
    if isinstance(tensors, tuple) and len(tensors) == 2:  # a TensorDataset: all at once
        columns: Sequence[Any] = [as_array(one, where) for one in tensors]
    else:
        columns = _taken(dataset, rows, where)
    examples, labels = columns
    check_numeric(examples.dtype, f"{where}, examples")
    examples = examples[:, None] if examples.ndim == 1 else examples
    labels = labels if labels.ndim == 2 else admit_column(labels, f"{where}, labels")
    return examples, labels, who


def _taken(dataset: Any, rows: int, where: str) -> list[NDArray[Any]]:
    columns: list[NDArray[Any]] = []
    texts: list[str] = []
    for row in range(rows):
        place = f"{where}, example {row} (from 0)"
        try:
            pair = dataset[row]
        except Exception as error:
            raise fault_in(error, f"{place} cannot be taken") from error
        if not isinstance(pair, tuple | list) or len(pair) != 2:
            raise ScafflixError(f"{place} is {shown(pair)}; give pairs (example, label).")
        found = [as_array(one, place) for one in pair]
        if not columns:
            columns = [np.empty((rows, *one.shape), one.dtype) for one in found]
        if found[1].dtype.kind == "U":
            texts.append(str(found[1]))
        for what, column, one in zip(("an example", "a label"), columns, found, strict=True):
            if one.shape != column.shape[1:]:
                raise ScafflixError(
                    f"{place} has {what} of shape {by(one.shape) or 'one number'}, but example 0 "
                    f"has {by(column.shape[1:]) or 'one number'}; give all the same."
                )
            if one.dtype.kind != column.dtype.kind:
                raise ScafflixError(
                    f"{place} has {what} of type {one.dtype}, but example 0 has {column.dtype}; "
                    "give all the same."
                )
            column[row] = one
    return [columns[0], np.array(texts)] if texts else columns
