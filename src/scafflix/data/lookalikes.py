"""Columns that would be taken for text, a feature for each value, though they hold something else:
numbers among which a word means missing, numbers and dates as other countries write them."""

from __future__ import annotations

import re
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from scafflix.core.errors import ScafflixError
from scafflix.data.values import Values

WORDS = 3  # the most different words that a column of numbers may have
NUMBER = re.compile(r"\s*[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?\s*")
GROUPED = re.compile(r"[-+]?\d{1,3}([, ']\d{3})+(\.\d+)?|[-+]?\d{1,3}([. ']\d{3})*,\d+|[-+]?\d+ ?%")
DATE = re.compile(r"\d{1,2}([./-])\d{1,2}\1(\d{4}|\d{2})( .*)?|\d{4}([./])\d{1,2}\4\d{1,2}( .*)?")


def refuse_lookalikes(found: Mapping[str, Values]) -> None:
    """Refuse a column of text more than half of whose rows are numbers or dates."""
    for name, one in found.items():
        if one.kind == "text":
            texts, counts = np.unique(one.values[~one.missing], return_counts=True)
            _refuse(f"{one.table.name}: column {name!r}", texts, counts)


def _refuse(where: str, texts: NDArray[np.str_], counts: NDArray[np.int64]) -> None:
    otherwise = "; if its values stand for kinds, name it under categorical."
    for kind, advice in (
        (GROUPED, "write numbers with a decimal point and nothing else"),
        (DATE, "write dates as 2024-12-31"),
    ):
        like = _like(kind, texts)
        if counts[like].sum() > counts.sum() / 2:
            raise ScafflixError(f"{where} holds {str(texts[like][0])!r}: {advice}{otherwise}")
    like = _like(NUMBER, texts)
    words = texts[~like]
    if 0 < len(words) <= WORDS and counts[like].sum() > counts.sum() / 2:
        shown = " and ".join(map(repr, words.tolist()))
        raise ScafflixError(
            f"{where} holds numbers and {shown}: if that means missing, name it under missing_as"
            f"{otherwise}"
        )


def _like(kind: re.Pattern[str], texts: NDArray[np.str_]) -> NDArray[np.bool_]:
    return np.array([kind.fullmatch(text) is not None for text in texts.tolist()], bool)
