r"""Text as sequences of codes, each place labelled with the code that follows.

The vocabulary is that of TensorFlow Federated's Shakespeare: 86 characters, in its order, with
four codes more, numbered as FedJAX numbers them:

====  =====================================================
0     padding
1     begin of a text
2     end of a text
3-88  ``dhlptx@DHLPTX $(,048cgkoswCGKOSW[_#'/37;?bfjnrvz...``
89    any other character
====  =====================================================

>>> decode(encode("Exeunt.\n"))
'Exeunt.\n'
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

CHARACTERS = (
    "dhlptx@DHLPTX $(,048cgkoswCGKOSW[_#'/37;?bfjnrvzBFJNRVZ\"&*.26:\naeimquyAEIMQUY]!%)-159\r"
)
PAD, BEGIN, END = 0, 1, 2
OTHER = 3 + len(CHARACTERS)
CODES = OTHER + 1
"""How many codes there are: 90."""

LENGTH = 80
"""The length of a sequence."""

NOTHING = -1
"""The label of a place where there is nothing to predict."""

Codes = NDArray[np.uint8]
Sequences = tuple[NDArray[np.uint8], NDArray[np.int8]]
"""Features and labels, both ``[rows, 80]``."""

CODE_OF = np.full(257, OTHER, np.uint8)  # of a character's number; 256 stands for all beyond
CODE_OF[[ord(character) for character in CHARACTERS]] = np.arange(3, OTHER)


def encode(text: str | bytes) -> Codes:
    """The code of each character, or of each byte.

    >>> encode("hat").tolist(), encode("ĥ").tolist()
    ([4, 66, 7], [89])
    """
    if isinstance(text, bytes):
        return CODE_OF[np.frombuffer(text, np.uint8)]
    # A lone surrogate, which JSON can spell, is a character like any other outside.
    numbers = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), "<u4")
    return CODE_OF[np.minimum(numbers, 256)]


def decode(codes: NDArray[Any]) -> str:
    """The characters of codes or labels; others are shown as �, all else as nothing."""
    written = [code for code in np.asarray(codes).ravel().tolist() if 3 <= code < CODES]
    return "".join("�" if code == OTHER else CHARACTERS[code - 3] for code in written)


def sequences(texts: Iterable[str | bytes]) -> Sequences:
    """Each text with begin and end, cut into consecutive windows of 80 places.

    The label of a place is the code that follows it; after the end come padding and the label
    -1. No window holds two texts.

    >>> features, labels = sequences(["hat"])
    >>> features[0, :6].tolist(), labels[0, :6].tolist()
    ([1, 4, 66, 7, 0, 0], [4, 66, 7, 2, -1, -1])
    """
    features, labels = [np.zeros((0, LENGTH), np.uint8)], [np.zeros((0, LENGTH), np.int8)]
    for text in texts:
        codes = np.concatenate([[BEGIN], encode(text), [END]])
        places = len(codes) - 1
        rows = -(-places // LENGTH)
        feature = np.full(rows * LENGTH, PAD, np.uint8)
        label = np.full(rows * LENGTH, NOTHING, np.int8)
        feature[:places], label[:places] = codes[:-1], codes[1:]
        features.append(feature.reshape(rows, LENGTH))
        labels.append(label.reshape(rows, LENGTH))
    return np.concatenate(features), np.concatenate(labels)


def continued(texts: list[str], following: list[str]) -> Sequences:
    """Texts of 80 characters, each with the one character that follows it.

    >>> features, labels = continued(["hat" + 77 * " "], ["!"])
    >>> decode(labels) == "at" + 77 * " " + "!"
    True
    """
    features = encode("".join(texts)).reshape(-1, LENGTH)
    last = encode("".join(following)).reshape(-1, 1)
    return features, np.hstack([features[:, 1:], last]).astype(np.int8)
