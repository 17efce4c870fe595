"""Handwritten characters: 28 x 28 grey values, white = 255, of 62 classes."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from scafflix.core.errors import ScafflixError

SIDE = 28
PIXELS = SIDE * SIDE
CLASSES = 62
"""The digits, the capital letters, the small letters."""

Images = NDArray[np.uint8]  # [rows, 28, 28]


def from_shares(shares: NDArray[Any], where: str) -> Images:
    """Images given as shares of white in [0, 1], ``[rows, 784]`` or ``[rows, 28, 28]``.

    >>> from_shares(np.full((1, 784), 0.2), "here")[0, 0, :2].tolist()
    [51, 51]
    """
    rows = len(shares)
    if shares.shape[1:] not in ((PIXELS,), (SIDE, SIDE)):
        raise ScafflixError(
            f"{where}: images of shape {shares.shape[1:]}; give {PIXELS} pixels for each."
        )
    inside = (shares >= 0.0) & (shares <= 1.0)  # false for NaN
    if not inside.all():
        row = int(np.argwhere(~inside)[0][0])
        value = shares[row][~inside[row]].flat[0]
        raise ScafflixError(
            f"{where}: image {row} (from 0) has a pixel {value:g}; give shares of white in [0, 1]."
        )
    return np.rint(shares * 255.0).astype(np.uint8).reshape(rows, SIDE, SIDE)


def check_classes(labels: NDArray[Any], rows: int, where: str) -> NDArray[np.int8]:
    """The class of each image, 0 to 61.

    >>> check_classes(np.array([0, 62]), 2, "here")
    Traceback (most recent call last):
    scafflix.core.errors.ScafflixError: here: label 1 (from 0) is 62; give ...
    """
    if labels.shape != (rows,):
        raise ScafflixError(
            f"{where}: {rows} images but labels of shape {labels.shape}; give one label per image."
        )
    if rows == 0:
        return np.zeros(0, np.int8)
    if labels.dtype.kind not in "iu":
        raise ScafflixError(
            f"{where}: labels of type {labels.dtype}; give whole numbers from 0 to {CLASSES - 1}."
        )
    outside = np.flatnonzero((labels < 0) | (labels >= CLASSES))
    if len(outside) > 0:
        raise not_a_class(int(outside[0]), int(labels[outside[0]]), where)
    return labels.astype(np.int8)


def not_a_class(row: int, label: object, where: str) -> ScafflixError:
    """The error for a label that is none of the classes."""
    return ScafflixError(
        f"{where}: label {row} (from 0) is {label!r}; give whole numbers from 0 to {CLASSES - 1}."
    )
