"""svmlight / LIBSVM text: ``label index:value index:value ...``, one example a line.

Indices count from 1 and rise within a line; ``qid:N`` and ``# comments`` are skipped. A good
file goes through scikit-learn's compiled reader. When that one stumbles, or returns what we
do not accept, the file is read again line by line to say which line is wrong.
"""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
from scipy import sparse

from scafflix.core.arguments import whole_number
from scafflix.core.errors import ScafflixError, reason_of
from scafflix.data.decompression import UNREADABLE, open_text, unreadable
from scafflix.data.rows import Rows

FEATURE_LIMIT = 10_000_000
"""The most features a file may claim on its own; models have a parameter for each."""

INDEX_LIMIT = 2**31 - 1
"""The most features that can be declared: the reader's indices are C ints."""


def read_svmlight(path: Path, features: int | None = None) -> Rows:
    """The examples of the file, their features sparse.

    ``features`` declares how many there are; otherwise the highest index says so.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder, "two.txt")
    ...     _ = path.write_text("+1 1:0.5 3:2 # a comment\\n-1 2:1\\n")
    ...     rows = read_svmlight(path)
    >>> rows.labels.tolist(), rows.features.toarray().tolist()
    ([1.0, -1.0], [[0.5, 0.0, 2.0], [0.0, 1.0, 0.0]])
    """
    # Imported here: scikit-learn takes a second, and most commands read no such file.
    from sklearn.datasets import load_svmlight_file

    if features is not None and whole_number("features", features, least=1) > INDEX_LIMIT:
        raise ScafflixError(f"features is {features}; declare at most {INDEX_LIMIT}.")
    try:
        with open_text(path) as file:
            matrix, labels = load_svmlight_file(file, n_features=features, zero_based=False)
    except UNREADABLE as error:
        raise unreadable(path, error) from error
    except Exception as error:  # whatever the fast reader met, the slow one names it
        find_fault(path, features)
        raise ScafflixError(f"{path}: not svmlight text ({reason_of(error)}).") from error
    if len(labels) == 0:
        raise ScafflixError(
            f"{path}: no examples; give lines of 'label index:value index:value ...'."
        )
    if features is None and matrix.nnz == 0:
        raise ScafflixError(
            f"{path}: no line has a feature; declare their number with features if that is meant."
        )
    if (
        not np.isfinite(matrix.data).all()
        or not np.isfinite(labels).all()
        or (features is None and matrix.shape[1] > FEATURE_LIMIT)
    ):
        find_fault(path, features)
    return Rows(sparse.csr_array(matrix), labels)


def find_fault(path: Path, features: int | None) -> None:
    """Raise an error that names the first faulty line, if there is one."""
    try:
        with open_text(path) as file:
            for number, line in enumerate(file, start=1):
                fault = line_fault(line, features)
                if fault is not None:
                    raise ScafflixError(f"{path}, line {number}: {fault}.")
    except UNREADABLE as error:
        raise unreadable(path, error) from error


def line_fault(line: bytes, features: int | None = None) -> str | None:
    """What is wrong with a line, or None.

    >>> line_fault(b"1 3:x")
    "feature '3:x' is not index:value"
    >>> line_fault(b"1 3:2 # fine")
    """
    words = line.split(b"#", 1)[0].split()
    if not words:
        return None
    label = as_float(words[0])
    if label is None:
        return f"label {shown(words[0])} is not a number"
    if not math.isfinite(label):
        return f"label {shown(words[0])} is not finite"
    previous = 0
    for word in words[2:] if words[1:2] and words[1].startswith(b"qid:") else words[1:]:
        index_text, colon, value_text = word.partition(b":")
        value = as_float(value_text)
        try:
            index = int(index_text)
        except ValueError:
            return f"feature {shown(word)} is not index:value"
        if not colon or value is None:
            return f"feature {shown(word)} is not index:value"
        if not math.isfinite(value):
            return f"feature {shown(word)} is not finite"
        if index < 1:
            return f"feature index {index} is below 1, where indices start"
        if index <= previous:
            return f"feature index {index} comes after {previous}, but indices must rise"
        if features is not None and index > features:
            return f"feature index {shown(index_text)} exceeds the {features} features declared"
        if features is None and index > FEATURE_LIMIT:
            return (
                f"feature index {shown(index_text)} exceeds {FEATURE_LIMIT}; "
                "declare the number with features if that is meant"
            )
        previous = index
    return None


def as_float(text: bytes) -> float | None:
    """The number that the text spells, or None."""
    try:
        return float(text)
    except ValueError:
        return None


def shown(text: bytes) -> str:
    """A quotation of arbitrary bytes that fits into a sentence."""
    decoded = text[:40].decode("utf-8", errors="backslashreplace")
    return repr(decoded + "..." if len(text) > 40 else decoded)
