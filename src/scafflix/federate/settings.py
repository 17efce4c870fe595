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
        return size, least
