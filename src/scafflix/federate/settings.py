"""How long a run is, with whom, and how much patience the server has."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from scafflix.core.errors import ScafflixError
from scafflix.simulate.cohorts import BLOW_UP


class Restart(NamedTuple):
    """How a run is taken up again, if not where it stopped; each begins a new epoch."""

    new_epoch: bool = False  # all control variates are zero again
    back_to: int | None = None  # the closed rounds after which to go on
    without: tuple[str, ...] = ()  # clients that leave for good


AS_IT_STOPPED = Restart()


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What the operator chooses and no theory gives."""

    rounds: int
    cohort: int | None = None  # clients a round; None: all that take part
    minimum: int | None = None  # replies without which a round is repeated; None: half a cohort
    attempts: int = 5  # at most, for one round
    seed: int = 0
    mirror: bool = False  # keep every h_i here too, to give back to a client that lost its own
    every: int = 1  # rounds between those in which clients report f_i(x~_i)
    far: float = 100.0  # times the usual distance: an upload beyond is refused; 0: none is
    blow_up: float = BLOW_UP  # times the objective of the start: divergence; 0: never
    checkpoints: int = 5  # to keep, beside that of the best model

    def sizes(self, n: int) -> tuple[int, int]:
        """Of a cohort, and of the least replies to it, where n clients take part.

        >>> Settings(rounds=1, cohort=3).sizes(8)
        (3, 2)
        """
        size = n if self.cohort is None else self.cohort
        least = (size + 1) // 2 if self.minimum is None else self.minimum
        if not 1 <= size <= n:
            raise ScafflixError(f"cohort is {size}; it must be at least 1 and at most {n}.")
        if not 1 <= least <= size:
            raise ScafflixError(
                f"minimum is {least}; it must be at least 1 and at most {size}, the clients of "
                "a round."
            )
        if min(self.rounds, self.attempts, self.every, self.checkpoints) < 1:
            raise ScafflixError("rounds, attempts, every and checkpoints must be at least 1.")
        for name, value in (("far", self.far), ("blow_up", self.blow_up)):
            if value and not value > 1:
                raise ScafflixError(f"{name} is {value:g}; it must be above 1, or 0 for no bound.")
        return size, least
