"""What users say about privacy: the clip, the noise, delta, and the epsilon not to exceed."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from scafflix.core.arguments import real_number
from scafflix.core.errors import ScafflixError

UNITS = ("client", "example")  # what two neighbouring federations differ in
PLACES = ("client", "server")  # who adds the noise of a sum over clients
DELTA = 1e-5  # unless there are so many clients or examples that it must be smaller


@dataclass(frozen=True)
class Release:
    """What a client lets out of a round: at most `clip` from where it began, plus Gaussian noise.

    `noise` is the noise multiplier: the standard deviation of every number of the sum over the
    cohort, divided by the clip. Each client adds its part of it, or the server all of it.
    """

    clip: float
    noise: float
    noise_at: str = "client"


def checked_clip(clip: object) -> float:
    """The largest norm that passes unchanged; infinity lets everything pass."""
    if isinstance(clip, float | np.floating) and clip == np.inf:
        return float(np.inf)
    return real_number("clip", clip, above=True)


def checked_release(clip: object, noise: object) -> tuple[float, float]:
    """A clip and a noise multiplier; noise needs something that it hides."""
    made = checked_clip(clip), real_number("noise_multiplier", noise)
    if np.isinf(made[0]) and made[1]:
        raise ScafflixError(
            "There is noise but no clip, and noise hides nothing that has no bound; give a clip."
        )
    return made


@dataclass(frozen=True)
class Limit:
    """How privacy is counted: delta, and the epsilon that no client's exceeds (None: no limit)."""

    delta: float | None = None  # None: 1e-5, or less where there are many to protect
    budget: float | None = None

    def __post_init__(self) -> None:
        if self.delta is not None and not 0 < real_number("delta", self.delta) < 1:
            raise ScafflixError(f"delta is {self.delta:g}; it must be above 0 and below 1.")
        if self.budget is not None:
            real_number("budget", self.budget, above=True)

    def delta_for(self, many: int) -> float:
        """Delta, where so many clients or examples are protected."""
        return default_delta(many) if self.delta is None else float(self.delta)


def default_delta(many: int) -> float:
    """Below one over the number of those who are protected.

    >>> default_delta(100), default_delta(1_000_000)
    (1e-05, 1e-07)
    """
    return min(DELTA, 1 / (10 * many))
