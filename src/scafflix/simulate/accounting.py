"""What every client of a run has spent of its privacy, after any number of rounds.

Who takes part and how many steps they make follow from the seed, and from no data. So all of it is
known before the run begins: how much noise a budget asks for, and after how many rounds it ends.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scafflix.core.errors import ScafflixError
from scafflix.core.progress import Progress, Standing
from scafflix.core.types import Floats
from scafflix.core.vector import names_of
from scafflix.gradients import Private
from scafflix.methods.disclosure import points_asked, weights_of
from scafflix.methods.method import Client, Method
from scafflix.methods.private import ready
from scafflix.privacy import (
    Limit,
    epsilon_of_batches,
    epsilon_of_cohorts,
    epsilon_of_gaussians,
    least_noise,
)
from scafflix.problems.problem import Problem
from scafflix.record import Record
from scafflix.simulate.batch import own_steps, steps_of, uniforms
from scafflix.simulate.cohorts import cohort_of
from scafflix.simulate.recording import Run

ALIKE = 1e-9  # how much weights that are the same may differ by rounding, relative


def is_private(method: Method) -> bool:
    """Whether there is anything to count."""
    return method.release is not None or isinstance(method.gradient, Private)


def check_private(member: Run, h0: object) -> None:
    """Refuse what would tell more than is counted."""
    if not is_private(member.method):
        return
    person = member.person
    unit = "client" if member.method.release is not None else "example"
    check_begin(unit, h0, person.start is not None and person.start.rounds > 0)
    check_mixing(unit, person.alpha[person.active])


def check_begin(unit: str, h0: object, warm: bool) -> None:
    """Refuse a start that is made of data."""
    if not isinstance(h0, str) or h0 != "zero":
        raise ScafflixError(
            f"h0 would be made of gradients without noise; with privacy {unit} it must be zero."
        )
    if warm:
        raise ScafflixError(
            f"A warm-up is rounds without noise; with privacy {unit} optima must be common or none."
        )


def check_mixing(unit: str, alpha: Any) -> None:
    """Refuse gradients of which more than one example's part depends on an example."""
    if unit == "example" and (np.asarray(alpha) < 1).any():
        raise ScafflixError(
            "Privacy for every example needs alpha = 1 in training: a gradient at a mixture with "
            "x_i* depends on every example by x_i* too, which no noise hides. Let clients mix at "
            "the end (alpha auto), or give privacy client."
        )


class Account:
    """The privacy of the clients of one run."""

    def __init__(
        self, problem: Problem, member: Run, cohort: int | None, rounds: int, limit: Limit
    ) -> None:
        self.member, self.method = member, member.method
        self.active, self.rounds = member.person.active, rounds
        self.examples = problem.federation.train.counts[self.active]
        self.size = len(self.active) if cohort is None else cohort
        self.names, self.total = names_of(problem.template), problem.n
        self.unit = "client" if self.method.release is not None else "example"
        many = len(self.active) if self.unit == "client" else int(self.examples.max(initial=1))
        self.delta = limit.delta_for(many)
        self.clients = Client(
            member.person.alpha[self.active],
            np.asarray(self.method.gamma),
            None,
            self.examples.astype(float),
            float(len(self.active)),
        )
        self._weights = weights_of(self.method, self.names, self.clients)
        self._asked = points_asked(self.method, self.names)
        # after how many rounds, and what is spent then: w_i^2 m / sum_j w_j^2 a round, or gradients
        self._known: tuple[int, Any] = (0, 0.0)

    @property
    def noise(self) -> float:
        """The noise multiplier."""
        found = self.method.release or self.method.gradient
        return float(found.noise)  # type: ignore[union-attr]

    def _cohort(self, number: int) -> NDArray[np.int64]:
        """Places of a round's clients among those that take part."""
        if self.size == len(self.active):
            return np.arange(self.size)
        chosen = cohort_of(self.member.seed, number, self.active, self.size)
        return np.searchsorted(self.active, chosen)

    def _gradients(self, steps: int, number: int) -> NDArray[np.int64]:
        """That each client computes, if it takes part in the round."""
        made = np.full(len(self.active), steps)
        if self.method.own_steps is not None:
            draws = uniforms(self.member.seed, number, self.active, self.total)
            made = np.minimum(made, own_steps(self.method, self.clients, steps, draws))
        return made

    def spent(self, rounds: int) -> Floats:
        """By each client after so many rounds, apart from the noise."""
        known, total = self._known if rounds >= self._known[0] else (0, 0.0)
        if rounds > known:
            total = total + np.zeros(len(self.active))
            steps = steps_of(self.method, self.member.seed, known, rounds - known)
            for number, K in enumerate(steps.tolist(), known):
                cohort = self._cohort(number)
                if self.unit == "client":
                    weights = self._weights[cohort] ** 2
                    total[cohort] += weights / weights.mean()
                else:
                    total[cohort] += self._asked * self._gradients(K, number)[cohort]
            self._known = rounds, total
        return total + np.zeros(len(self.active))

    def epsilons(self, rounds: int) -> Floats:
        """Of every client that takes part, after so many rounds."""
        found = [
            self._epsilon(self.noise, rounds, *one)
            for one in zip(self.spent(rounds).tolist(), self.examples.tolist(), strict=True)
        ]
        return np.array(found)

    def worst(self, rounds: int, noise: float | None = None) -> float:
        """What no client's epsilon exceeds: that of one who has spent most with fewest examples."""
        if not len(self.active):
            return 0.0
        noise = self.noise if noise is None else noise
        most, fewest = float(self.spent(rounds).max()), int(self.examples.min())
        return self._epsilon(noise, rounds, most, fewest)

    def _epsilon(self, noise: float, rounds: int, spent: float, examples: int) -> float:
        if not spent:
            return 0.0
        if not noise:
            return np.inf
        if self.unit == "example":
            assert isinstance(self.method.gradient, Private)
            size = self.method.gradient.size
            share = 1.0 if size is None else size / examples
            return epsilon_of_batches(share, noise, round(spent), self.delta)
        alone = epsilon_of_gaussians(spent / noise**2, self.delta)
        # with other weights another cohort's mean has noise of another size, which would tell who
        # was asked, and the theorem does not cover that
        if self.size == len(self.active) or np.ptp(self._weights) > ALIKE * self._weights.max():
            return alone
        sampled = (len(self.active), self.size, noise, rounds, self.delta)
        return min(alone, epsilon_of_cohorts(*sampled))

    def within(self, budget: float) -> int:
        """How many rounds keep every client within the budget."""
        low, high = 0, self.rounds + 1  # these many do, these do not
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if self.worst(middle) <= budget else (low, middle)
        return low

    def facts(self, rounds: int, limit: Limit, asked: int) -> dict[str, Any]:
        """What a summary says."""
        found = self.method.release or self.method.gradient
        return {
            "unit": self.unit,
            "clip": _finite(found.clip),  # type: ignore[union-attr]
            "noise_multiplier": self.noise,
            "noise_at": "client" if self.method.release is None else self.method.release.noise_at,
            "delta": self.delta,
            "epsilon": _finite(self.epsilons(rounds).max(initial=0.0)),
            "budget": limit.budget,
            "rounds_asked": asked,
            "ended_by_budget": rounds < asked,
        }


def _finite(value: Any) -> float | None:
    """JSON has no infinity."""
    return float(value) if np.isfinite(value) else None


def allowed_rounds(account: Account | None, limit: Limit, rounds: int) -> int:
    """The rounds of a run, as many as the budget allows."""
    if account is None or limit.budget is None:
        return rounds
    made = account.within(limit.budget)
    if not made:
        raise ScafflixError(
            f"One round takes epsilon to {account.worst(1):.3g}, beyond the budget "
            f"{limit.budget:g}; give more noise, or leave out noise_multiplier."
        )
    return made


def noise_within(
    problem: Problem, member: Run, cohort: int | None, rounds: int, limit: Limit
) -> float:
    """The least noise multiplier with which all rounds of a run are within the budget, whatever
    that of the given method is."""
    assert limit.budget is not None
    method = ready(member.method, names_of(problem.template))
    account = Account(problem, member._replace(method=method), cohort, rounds, limit)
    if not len(account.active):
        return 1.0
    return least_noise(lambda noise: account.worst(rounds, noise), limit.budget)


def account_of(
    problem: Problem, member: Run, cohort: int | None, rounds: int, limit: Limit
) -> Account | None:
    """The account of a run, if it is private."""
    if not is_private(member.method):
        return None
    return Account(problem, member, cohort, rounds, limit)


def told(progress: Progress, account: Account) -> Progress:
    """Progress that tells epsilon too."""

    def report(done: int, total: int, state: Standing | str) -> None:
        if isinstance(state, Standing):
            state = state._replace(values={**state.values, "epsilon": account.worst(done)})
        progress(done, total, state)

    return report


def with_privacy(made: Record, account: Account, limit: Limit, asked: int) -> Record:
    """The record, with what each client has spent."""
    rounds = int(made.summary["rounds"])
    epsilon = np.zeros(account.total)
    epsilon[account.active] = account.epsilons(rounds)
    summary = {**made.summary, "privacy": account.facts(rounds, limit, asked)}
    return replace(made, summary=summary, clients={**made.clients, "epsilon": epsilon})
