"""How long a run of cohorts is, with how many clients a round, and when to look."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from numpy.typing import NDArray

from scafflix.core import private
from scafflix.core.arguments import choice
from scafflix.core.cache import cache_folder
from scafflix.core.checkpoint import Checkpoints
from scafflix.core.checks import check_rounds
from scafflix.core.durable import Facts
from scafflix.core.errors import ScafflixError
from scafflix.core.store import disk_errors
from scafflix.data.federation import Federation
from scafflix.gradients import Exact, Gradient, Minibatch, Private, Reduced
from scafflix.problems.problem import Problem

LARGEST_IN_MEMORY = 4 * 2**30  # bytes of client states
STATES = "states.rows"
STORES = ("auto", "memory", "disk")


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """What a run of cohorts is asked for, besides its method."""

    rounds: int
    cohort: int | None = None  # clients a round; None: all
    seed: int = 0
    every: int = 10  # rounds between evaluations
    part: str = "test"  # that evaluations look at
    store: Path | None = None  # a file for the states of the clients; None: memory

    @property
    def facts(self) -> Facts:
        """What a run with this schedule depends on, in plain values."""
        return {"cohort": self.cohort, "rounds between evaluations": self.every}


def check_schedule(
    schedule: Schedule, alpha: NDArray[np.float64], federation: Federation, linear: bool
) -> None:
    """Refuse, before anything runs, what these clients cannot do."""
    check_rounds(schedule.rounds)
    active = int((alpha > 0).sum())
    if not active:
        return  # nobody takes part, and no round is needed
    if schedule.cohort is not None and not 1 <= schedule.cohort <= active:
        raise ScafflixError(
            f"cohort is {schedule.cohort}; it must be at least 1 and at most {active}, the "
            "number of clients that take part."
        )
    check_rounds(schedule.every, "every")
    if not linear and schedule.part not in federation.parts:
        raise ScafflixError(f"There are no {schedule.part} data to look at.")


def check_sampled(gradient: Gradient, h0: object) -> None:
    """Refuse what rounds of some of the clients, and networks, do not do."""
    if not isinstance(gradient, Exact | Minibatch | Reduced | Private):
        raise ScafflixError(
            "Rounds of sampled clients take minibatch or exact gradients, without added noise."
        )
    if not isinstance(h0, str) or h0 != "zero":
        raise ScafflixError(
            "h0 is for rounds of all clients of a linear model; here control variates begin at 0."
        )


def check_unsampled(every: int | None, store: str) -> None:
    """Refuse what is not asked of rounds of all clients of a linear model."""
    for name, given in (("every", every is not None), ("store", store != "auto")):
        if given:
            raise ScafflixError(
                f"{name} is for networks and rounds of some of the clients; a linear model with "
                "all of them is measured in every round, in memory. Leave it out."
            )


@contextmanager
def states_file(problem: Problem, store: str, checkpoints: Checkpoints) -> Iterator[Path | None]:
    """Where the states of the clients lie: in memory (None), or where they are large in a file
    beside the checkpoints, or in one for as long as the run takes."""
    large = problem.dtype.itemsize * problem.n * problem.size > LARGEST_IN_MEMORY
    if store == "memory" or (store == "auto" and not large):
        yield None
    elif checkpoints.folder is not None:
        checkpoints.announce()
        yield checkpoints.folder / STATES
    else:
        states = cache_folder() / "states"
        with disk_errors(states):
            place = TemporaryDirectory(dir=private.make_folder(states))  # itself private too
        with place as folder:
            yield Path(folder) / STATES


def looks_every(rounds: int) -> int:
    """Rounds of a network between looks, unless told otherwise: ten looks, since one takes as long
    as several rounds.

    >>> looks_every(40), looks_every(1000)
    (10, 100)
    """
    return max(10, math.ceil(rounds / 10))


def check_store(store: object) -> str:
    """Refuse a place that nobody knows."""
    return choice("store", store, STORES)
