"""The length of a run, the sizes of its rounds, and the server's limits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from scafflix.core.errors import ScafflixError
from scafflix.federate.privacy import Terms
from scafflix.simulate.cohorts import BLOW_UP


class Restart(NamedTuple):
    """How to continue a run other than where it stopped; each option begins a new epoch."""

    new_epoch: bool = False  # all control variates are zero again
    back_to: int | None = None  # continue after this many closed rounds
    without: tuple[str, ...] = ()  # clients that leave for good


AS_IT_STOPPED = Restart()


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What the operator chooses, because theory does not determine it."""

    rounds: int
    cohort: int | None = None  # clients per round; None: all that take part
    minimum: int | None = None  # replies needed, or the round is repeated; None: half the cohort
    attempts: int = 5  # at most, per round
    seed: int = 0
    mirror: bool = False  # keep a copy of every h_i, for a client that loses its own
    every: int = 1  # clients report f_i(x~_i) every this many rounds
    far: float = 100.0  # refuse uploads beyond this multiple of the usual distance; 0: never
    blow_up: float = BLOW_UP  # divergence: this multiple of the first objective; 0: never
    privacy: Terms | None = None  # what clients and server agreed on
    checkpoints: int = 5  # checkpoints to keep, besides the one of the best model
    secure_aggregation: bool = False  # the server learns sums of a cohort's messages alone
    threshold: int | None = None  # clients that must stay for that; None: more than half

    def sizes(self, n: int) -> tuple[int, int]:
        """The size of a cohort and the replies it needs, if n clients take part.

        >>> Settings(rounds=1, cohort=3).sizes(8)
        (3, 2)
        """
        size = n if self.cohort is None else self.cohort
        least = (size + 1) // 2 if self.minimum is None else self.minimum
        if not 1 <= size <= n:
            raise ScafflixError(f"cohort is {size}; it must be at least 1 and at most {n}.")
        if not 1 <= least <= size:
            raise ScafflixError(
                f"minimum is {least}; it must be at least 1 and at most {size}, the number of "
                "clients per round."
            )
        if min(self.rounds, self.attempts, self.every, self.checkpoints) < 1:
            raise ScafflixError("rounds, attempts, every and checkpoints must be at least 1.")
        for name, value in (("far", self.far), ("blow_up", self.blow_up)):
            if value and not value > 1:
                raise ScafflixError(f"{name} is {value:g}; it must be above 1, or 0 for no bound.")
        if self.secure_aggregation:
            return size, max(least, self.threshold_of(size))
        if self.threshold is not None:
            raise ScafflixError("threshold is for secure_aggregation; set it, or leave both out.")
        return size, least

    def threshold_of(self, size: int) -> int:
        """The t of t-out-of-n shares for a cohort of this size: more than half, so that a server
        that lies about who is there cannot get one secret from some and the other from the rest.

        >>> Settings(rounds=1, secure_aggregation=True).threshold_of(5)
        3
        """
        if size < 2:
            raise ScafflixError(
                "secure_aggregation needs at least 2 clients per round; the sum of one hides "
                "nothing."
            )
        if self.mirror:
            raise ScafflixError(
                "mirror needs single uploads, which secure_aggregation hides; leave out one of "
                "them."
            )
        threshold = size // 2 + 1 if self.threshold is None else self.threshold
        if not 2 <= threshold <= size or 2 * threshold <= size:
            raise ScafflixError(
                f"threshold is {threshold}; it must be at least 2, more than half of the {size} "
                f"clients per round, and at most {size}."
            )
        return threshold
