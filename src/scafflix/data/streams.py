"""One seed, separate streams: how rows are split does not move which rows are held out."""

from __future__ import annotations

from enum import IntEnum

import numpy as np

from scafflix.core.arguments import whole_number


class Stream(IntEnum):
    """What randomness in `scafflix.data` is for; the numbers are part of reproducibility."""

    SPLIT = 1
    TEST = 2
    SYNTHETIC = 3
    VALIDATION = 4
    HELD_OUT = 5
    CLASSES = 6


def generator(seed: int, stream: Stream) -> np.random.Generator:
    """The random numbers of one purpose.

    >>> a, b = generator(0, Stream.SPLIT), generator(0, Stream.TEST)
    >>> a.random() == b.random()
    False
    """
    return np.random.default_rng([whole_number("seed", seed, least=0), int(stream)])
