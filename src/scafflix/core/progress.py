"""What a long computation tells while it goes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

MINUTES = 10.0  # between two checkpoints, unless told otherwise


class Standing(NamedTuple):
    """How a run stands; where several go side by side, the worst value and the sums.

    >>> print(Standing({"gap": 0.00123}, bits=8_000_000, steps=500))
    gap 0.00123, 1 MB
    """

    values: Mapping[str, float]
    bits: int  # sent so far, up and down
    steps: int  # local steps of all clients so far

    def __str__(self) -> str:
        words = [f"{name} {value:.3g}" for name, value in self.values.items()]
        return ", ".join([*words, f"{self.bits / 8e6:.3g} MB"])


# rounds done, of how many, and how it stands: in words during a stage that has no rounds
Progress = Callable[[int, int, Standing | str], None]
