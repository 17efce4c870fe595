"""A node's examples, read from a file that stays on the node.

The file is svmlight or npz; a table goes through `agreement`. An npz file holds `x` (or
`features`), `y` (or `labels`) and optionally `part`: train, test or validation for each row.
Without `part`, the shares given in the configuration are held out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scafflix.core import durable
from scafflix.core.errors import ScafflixError
from scafflix.data.admission import admit_features
from scafflix.data.archive import one_of, open_archive
from scafflix.data.arrays import Preparation, prepare
from scafflix.data.federation import Examples, Federation
from scafflix.federate.configuration import DeployConfig
from scafflix.runs.assembly import SHARE, load_data

PARTS = ("train", "test", "validation")


def load_examples(config: DeployConfig, path: Path, *, network: bool) -> Federation:
    """The federation of one client; a network's examples may have any shape."""
    test = config.test if config.test is not None else SHARE if network else 0.0
    if path.suffix != ".npz":
        options = {"clients": 1, "split": None, "test": test, "min_examples": None}
        return load_data(config, source=path, **options)
    with open_archive(path) as archive:
        x, y = one_of(path, archive, "features", "x"), one_of(path, archive, "labels", "y")
        part = archive["part"] if "part" in archive.files else None
    features: Any = _numbers(x, path) if network else admit_features(x, f"{path}, features")
    scale = "none" if config.scale == "auto" else config.scale
    scaling = Preparation(seed=config.data_seed, scale=scale, intercept=bool(config.intercept))
    if part is not None:
        divided = by_parts(features, y, part, str(path))
        return prepare(Federation(path.name, (path.stem,), *divided), scaling)
    whole = Federation(path.name, (path.stem,), _examples(features, y))
    shares = replace(scaling, test=test, validation=config.validation or 0.0)
    return prepare(whole, shares)


def save_examples(path: Path, parts: Mapping[str, Examples]) -> None:
    """Write an npz file that says which part each row belongs to."""
    features = [
        part.features if isinstance(part.features, np.ndarray) else part.features.toarray()
        for part in parts.values()
    ]
    labels = [part.labels for part in parts.values()]
    part = np.repeat(list(parts), list(map(len, labels)))
    with durable.replacing(path) as file:
        np.savez(file, x=np.concatenate(features), y=np.concatenate(labels), part=part)


def numbered(federation: Federation, classes: Sequence[Any]) -> tuple[Federation, tuple[int, ...]]:
    """Labels as positions in the agreed classes; whole numbers from 0 stay as they are.

    If each example has a sequence of labels, they are left unchanged.
    """
    if federation.train.labels.ndim > 1:
        return federation, ()
    known = np.unique(np.array(classes)) if classes else np.zeros(0, int)
    counted = known.dtype.kind in "iu" and (known >= 0).all()
    parts: dict[str, Any] = {}
    for name, part in federation.parts.items():
        labels = part.labels
        if counted:
            labels = _counted(labels)
        if len(known):
            unknown = np.setdiff1d(labels, known)
            if len(unknown):
                raise ScafflixError(
                    f"A label is {unknown[0]}, which is not among the classes; add it to classes."
                )
        if not counted:
            labels = np.searchsorted(known, labels)
        parts[name] = replace(part, labels=labels)
    places = known.tolist() if counted else range(len(known))
    return replace(federation, **parts), tuple(places)


def _counted(labels: NDArray[Any]) -> NDArray[np.int64]:
    """Labels 0, 1, ... as integers."""
    if labels.dtype.kind in "iufb":
        whole = labels.astype(np.int64)
        if (whole == labels).all() and (whole >= 0).all():
            return whole
    raise ScafflixError(
        f"A label is {labels[0]}; a network's labels must be 0, 1, ..., or classes must list all "
        "labels that occur at any node."
    )


def _numbers(x: NDArray[Any], path: Path) -> NDArray[Any]:
    if x.dtype.kind not in "fiub" or not np.isfinite(x).all():
        raise ScafflixError(f"{path}: all features must be finite numbers.")
    return x


def _examples(features: Any, labels: NDArray[Any]) -> Examples:
    return Examples(features, labels, np.array([0, features.shape[0]]))


def by_parts(
    features: Any, labels: NDArray[Any], part: NDArray[Any], where: str
) -> tuple[Examples, Examples | None, Examples | None]:
    """The three parts, in the order of a Federation's fields."""
    if len(np.setdiff1d(part, PARTS)) or part.shape != labels.shape[:1]:
        raise ScafflixError(f"{where}: part must be one of {', '.join(PARTS)} for each row.")
    rows = [np.flatnonzero(part == name) for name in PARTS]
    train, test, validation = (_examples(features[one], labels[one]) for one in rows)
    return train, test if len(rows[1]) else None, validation if len(rows[2]) else None
