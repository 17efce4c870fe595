"""Texts as bags of words, hashed into so many features that nobody has to agree on a vocabulary."""

from __future__ import annotations

from collections.abc import Sequence

from scipy import sparse

from scafflix.core.errors import ScafflixError

FEATURES = 2**12
"""Features of a text; words that share one are not told apart."""


def hashed(texts: Sequence[str | None], where: str = "texts") -> sparse.csr_array:
    """How often each word occurs in each text, ``[rows, 4096]``, every row of length 1.

    >>> rows = hashed(["To be, or not to be", "be"])
    >>> rows.shape, rows.nnz
    ((2, 4096), 5)
    """
    from sklearn.feature_extraction.text import HashingVectorizer

    missing = [row for row, text in enumerate(texts) if text is None]
    if missing:
        raise ScafflixError(f"{where}: row {missing[0] + 1} has no text; fill it or remove it.")
    made = HashingVectorizer(n_features=FEATURES, alternate_sign=False).transform(texts)
    made = sparse.csr_array(made)
    made.sum_duplicates()
    return made
