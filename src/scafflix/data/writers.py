"""Writers of characters in one NumPy archive: arrays ``train_x``, ``train_y``, ``train_user``
and the same for ``test_``; uint8 images ``[rows, 28, 28]``, labels 0 to 61, text as users."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scafflix.core.errors import ScafflixError
from scafflix.data.archive import open_archive
from scafflix.data.arrays import group
from scafflix.data.images import SIDE, check_classes
from scafflix.data.parts import Clients, Parts

ARRAYS = ("x", "y", "user")


def read_writers(path: Path) -> Parts:
    """The writers of the archive with their training and test images."""
    with open_archive(path) as archive:
        wanted = [f"{part}_{name}" for part in ("train", "test") for name in ARRAYS]
        missing = [name for name in wanted if name not in archive.files]
        if missing:
            raise ScafflixError(
                f"{path}: there is no array {missing[0]!r}; the arrays must be {', '.join(wanted)}."
            )
        arrays = {name: archive[name] for name in wanted}
    train, test = (
        by_writer(path, part, *(arrays[f"{part}_{name}"] for name in ARRAYS))
        for part in ("train", "test")
    )
    return Parts(train, test)


def by_writer(
    path: Path, part: str, images: NDArray[Any], labels: NDArray[Any], users: NDArray[Any]
) -> Clients:
    """The images and labels of each writer, in order of first appearance."""
    where = f"{path}, {part}_x"
    if images.dtype != np.uint8 or images.shape[1:] != (SIDE, SIDE):
        raise ScafflixError(
            f"{where}: values of type {images.dtype} and shape {images.shape}; "
            f"give uint8 images, [rows, {SIDE}, {SIDE}]."
        )
    if users.shape != (len(images),):
        raise ScafflixError(
            f"{path}, {part}_user: shape {users.shape} for {len(images)} images; "
            "give one user per image."
        )
    if labels.shape != (len(images),):
        raise ScafflixError(
            f"{path}, {part}_y: shape {labels.shape} for {len(images)} images; "
            "give one label per image."
        )
    if len(images) == 0:
        return {}
    owners, names = group(users, f"{path}, {part}_user")
    order = np.argsort(owners, kind="stable")
    ends = np.cumsum(np.bincount(owners, minlength=len(names)))[:-1]
    return {
        name: (
            images[rows],
            check_classes(labels[rows], len(rows), f"{path}, {part}, client {name!r}"),
        )
        for name, rows in zip(names, np.split(order, ends), strict=True)
    }
