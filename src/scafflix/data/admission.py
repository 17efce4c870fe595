"""What arrays may enter: real, finite, of the right shape, with the fault named if not."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from scafflix.core.errors import ScafflixError
from scafflix.data.federation import Features, Labels

DENSE_LIMIT = 2**28
"""The most entries a dense feature array may have (2 GiB of float64)."""

BYTE_LIMIT = 8 * DENSE_LIMIT
"""The most bytes of an array in a file; the images of all FEMNIST are 0.6 GB."""

TEXT_LIMIT = 1000
"""The most letters of a label, a category or an id;
NumPy gives every text the room of the longest."""


def admit_features(features: object, where: str = "features") -> Features:
    """The features as float64, dense or CSR, checked; rows and columns are named from 0.

    >>> admit_features([[1, 2], [3, 4]]).dtype
    dtype('float64')
    >>> admit_features([[1.0, float("nan")]])
    Traceback (most recent call last):
    scafflix.core.errors.ScafflixError: features: row 0, column 1 (from 0) is nan; ...
    """
    if sparse.issparse(features):
        return admit_sparse(features, where)
    array = as_array(features, where)
    check_numeric(array.dtype, where)
    if array.ndim != 2:
        raise ScafflixError(
            f"{where}: an array of shape {array.shape}; reshape it to rows by features."
        )
    check_not_empty(array.shape, where)
    with np.errstate(over="ignore"):  # a long double too large for float64 is refused below
        dense = np.ascontiguousarray(array, dtype=np.float64)
    finite = np.isfinite(dense)
    if not finite.all():
        row, column = (int(i) for i in np.argwhere(~finite)[0])
        raise not_finite(where, row, column, dense[row, column])
    return dense


def admit_sparse(features: Any, where: str) -> sparse.csr_array:
    """A sparse matrix of any format as CSR, checked."""
    check_numeric(features.dtype, where)
    if features.ndim != 2:
        raise ScafflixError(f"{where}: {features.ndim} dimensions; give rows by features.")
    check_not_empty(features.shape, where)
    matrix = sparse.csr_array(features, dtype=np.float64)
    if not matrix.has_canonical_format:
        # SciPy adds duplicates in place; the caller's own matrix must stay as it is.
        matrix = matrix.copy()
        matrix.sum_duplicates()
    bad = np.flatnonzero(~np.isfinite(matrix.data))
    if len(bad) > 0:
        row = int(np.searchsorted(matrix.indptr, bad[0], side="right")) - 1
        raise not_finite(where, row, int(matrix.indices[bad[0]]), matrix.data[bad[0]])
    return matrix


def admit_labels(labels: ArrayLike, rows: int, where: str = "labels") -> Labels:
    """One label per row: real finite numbers, booleans or text.

    >>> admit_labels(["cat", "dog"], rows=2).tolist()
    ['cat', 'dog']
    """
    array = admit_column(labels, where)
    if len(array) != rows:
        raise ScafflixError(f"{where}: {len(array)} for {rows} rows of features; give one per row.")
    return array


def admit_column(values: ArrayLike, where: str) -> Labels:
    """A column of real finite numbers, booleans or text."""
    array = as_array(values, where)
    if array.ndim != 1:
        raise ScafflixError(f"{where}: an array of shape {array.shape}; give one value per row.")
    if array.dtype.kind == "O" and all(isinstance(value, str) for value in array):
        array = array.astype(np.str_)  # how a pandas column of text arrives
    if array.dtype.kind == "S":
        try:
            array = np.char.decode(array.astype(np.bytes_), "utf-8")
        except UnicodeDecodeError as error:
            raise ScafflixError(f"{where}: bytes that are not UTF-8; give text.") from error
    if array.dtype.kind not in "biufU":
        raise ScafflixError(
            f"{where}: values of type {array.dtype}; give real numbers, booleans or text."
        )
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        row = int(np.argmin(np.isfinite(array)))
        raise ScafflixError(f"{where}: row {row} (from 0) is {array[row]}; give finite numbers.")
    return array


def as_array(values: object, where: str) -> NDArray[np.generic]:
    """The values as a NumPy array; nested lists of unequal length are refused."""
    try:
        return np.asarray(values)
    except Exception as error:  # whatever an object of another library raises
        raise ScafflixError(
            f"{where}: not a rectangular array; give rows of equal length."
        ) from error


def check_numeric(dtype: np.dtype[np.generic], where: str) -> None:
    """Refuse complex numbers, objects, text and dates as features."""
    if dtype.kind not in "biuf":
        raise ScafflixError(f"{where}: values of type {dtype}; give real numbers.")


def check_not_empty(shape: tuple[int, ...], where: str) -> None:
    """Refuse features without rows or without columns."""
    if 0 in shape:
        raise ScafflixError(
            f"{where}: {shape[0]} rows of {shape[1]} features; give at least one of each."
        )


def check_dense_size(rows: int, columns: int, where: str) -> None:
    """Refuse a dense array that would fill the memory."""
    if rows * columns > DENSE_LIMIT:
        raise ScafflixError(
            f"{where}: {rows} rows of {columns} dense features exceed {DENSE_LIMIT} entries; "
            "use fewer rows or features, or sparse features without scale='standard'."
        )


def not_finite(where: str, row: int, column: int, value: np.float64) -> ScafflixError:
    """The error for a NaN or an infinity among the features."""
    return ScafflixError(
        f"{where}: row {row}, column {column} (from 0) is {value}; give finite numbers."
    )
