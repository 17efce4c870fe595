"""From constants to stepsizes, p and the rate; the Lyapunov function; the certificate.

Theorem 1, for stepsizes gamma_i <= 1/A_i:

    Psi^t = (1/n) sum_i (gamma_min/gamma_i) ||x~_i^t - x~_i*||^2
          + (gamma_min/p^2) (1/n) sum_i gamma_i ||h_i^t - grad f_i(x~_i*)||^2

    E Psi^t <= (1 - zeta)^t Psi^0 + (gamma_min/zeta) (1/n) sum_i gamma_i C_i
    zeta = min(min_i gamma_i mu_i, p^2)
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from jax import Array

from scafflix.core.arguments import instance, numbers, real_number, shown
from scafflix.core.errors import ScafflixError
from scafflix.core.showing import Shown
from scafflix.core.types import Floats
from scafflix.gradients import Exact, Gradient, Reduced
from scafflix.problems.constants import Constants

LEAST_PROBABILITY = 1e-9  # a round of a billion steps
UNIT = 64 * np.finfo(np.float64).eps  # what a few operations may lose of a number


class Rate(NamedTuple):
    """A guarantee E Psi^t <= factor (1 - zeta)^t Psi^0 + noise; all NaN where there is none."""

    zeta: Any
    factor: Any = 1.0
    noise: Any = 0.0
    least: Any = math.inf  # clients of a round for which it holds, where not all take part

    def bound(self, t: Any, psi0: Any) -> Any:
        """What Psi^t stays under, in expectation."""
        return self.factor * (1 - self.zeta) ** t * psi0 + self.noise

    def covers(self, cohort: int, clients: int) -> bool:
        """Whether it speaks of rounds of so many of the clients."""
        return cohort == clients or bool(cohort >= self.least)

    def iterations(self, psi0: float, epsilon: float) -> int | None:
        """The first t with bound(t) <= epsilon; None where the guarantee does not get there.

        >>> Rate(zeta=0.5).iterations(psi0=1.0, epsilon=0.1)
        4
        """
        room = epsilon - self.noise
        if not (room > 0 and self.zeta > 0):
            return None
        if self.factor * psi0 <= room:
            return 0
        if self.zeta >= 1:
            return 1
        return math.ceil(math.log(self.factor * psi0 / room) / -math.log1p(-self.zeta))


NO_RATE = Rate(math.nan, math.nan, math.nan)


def theorem(gamma: Floats, p: float, mu: Floats, A: Floats, C: Floats) -> Rate:
    """Theorem 1's rate, or none where some gamma_i exceeds 1/A_i."""
    if (gamma > (1 + 1e-12) / A).any():
        return NO_RATE
    zeta = min(float((gamma * mu).min()), p**2)
    return Rate(zeta, 1.0, float(gamma.min() / zeta * np.mean(gamma * C)))


@dataclass(frozen=True)
class Plan(Shown):
    """What theory knows of the clients that take part, and what it advises Scafflix to do."""

    alpha: Floats
    constants: Constants
    gradient: Gradient  # how gradients are estimated
    A: Floats
    C: Floats
    gamma: Floats  # stepsizes by Corollary 1, or by Corollary 2 for a target epsilon
    p: float  # the probability of communication
    epsilon: float | None
    pace: str = "expected"  # of control variates: the proven one
    cap: float = 0.0  # on the length of a corrected step, in lengths of the gradient; 0: none
    made_for: Mapping[str, Any] | None = None  # functions, smoothness and alpha; None: unknown

    @property
    def n(self) -> int:
        """The number of clients that take part."""
        return len(self.alpha)

    @property
    def exact(self) -> bool:
        """Whether the gradients are exact."""
        return isinstance(self.gradient, Exact)

    @property
    def known(self) -> bool:
        """Whether constants are known; else the stepsizes are chosen ones, and no theorem holds."""
        return bool(np.isfinite(self.A).all())

    def p_for(self, gamma: Floats) -> float:
        """The p that goes with stepsizes of one's own; where no constants are known, the plan's."""
        mu = self.constants.mu
        return probability(gamma, mu) if (mu > 0).all() else self.p

    def guarantee(self, gamma: Floats, p: float) -> Rate:
        """Theorem 1's rate with such stepsizes and p, and with what the gradients remember."""
        made = theorem(gamma, p, self.constants.mu, self.A, self.C)
        if not isinstance(self.gradient, Reduced) or math.isnan(made.zeta):
            return made
        zeta, first = self.gradient.slower(gamma, self.constants)
        return made._replace(zeta=min(made.zeta, zeta), factor=made.factor * (1 + first))

    @property
    def rate(self) -> Rate:
        """What Theorem 1 guarantees with these stepsizes and this p."""
        return self.guarantee(self.gamma, self.p)

    @property
    def facts(self) -> dict[str, Any]:
        """The plan in numbers and ranges."""

        def spread(values: Floats) -> str:
            return f"{values.min():.4g} to {values.max():.4g}"

        return {
            "L_i": spread(self.constants.L),
            "mu_i": spread(self.constants.mu),
            "kappa_max": float(self.constants.kappa.max()),
            "A_i": spread(self.A),
            "C_i": spread(self.C),
            "gamma_i": spread(self.gamma),
            "p": self.p,
            "local steps per round": 1 / self.p,
            "zeta": float(self.rate.zeta),
        }


def check_plan(plan: object) -> None:
    """Refuse what a user may have put in the place of a plan."""
    instance("plan", plan, Plan, "a plan, as sx.plan(problem, person) makes it")


def advise(
    alpha: Floats,
    constants: Constants,
    gradient: Gradient,
    A: Floats,
    C: Floats,
    epsilon: float | None = None,
) -> Plan:
    """gamma_i = 1/A_i and p = sqrt(min_i gamma_i mu_i) (Corollary 1); for a target E Psi <=
    epsilon, gamma_i = min(1/A_i, epsilon mu_min / (2 C_i)) (Corollary 2)."""
    gamma = 1 / A
    if epsilon is not None:
        with np.errstate(divide="ignore"):
            gamma = np.minimum(gamma, epsilon * constants.mu.min() / (2 * C))
    p = probability(gamma, constants.mu)
    return Plan(alpha, constants, gradient, A, C, gamma, p, epsilon)


def without_theory(alpha: Floats, gamma: Floats, p: float, gradient: Gradient) -> Plan:
    """The plan of functions whose constants nobody knows: chosen stepsizes, no guarantee."""
    unknown = np.full(len(alpha), np.inf)
    nothing = np.zeros(len(alpha))
    constants = Constants(1 / gamma, nothing, unknown)
    return Plan(alpha, constants, gradient, unknown, nothing, gamma, p, None, "steady", 1.0)


def probability(gamma: Floats, mu: Floats) -> float:
    """p = sqrt(min_i gamma_i mu_i), which makes both terms of zeta equal."""
    return min(1.0, math.sqrt(float((gamma * mu).min())))


def chosen_stepsizes(
    given: float | Floats | None, advised: float | Floats, n: int, name: str = "stepsize"
) -> Floats:
    """One stepsize for each of n clients: what the user gave, else what theory advises."""
    values = numbers(name, advised if given is None else given, finite=False)
    if values.shape not in ((), (n,)):
        raise ScafflixError(
            f"{name} has the shape {values.shape}; give one number, or one for each of the "
            f"{n} clients that take part."
        )
    values = np.broadcast_to(values, (n,))
    if not (np.isfinite(values).all() and (values > 0).all()):
        if given is None:
            raise ScafflixError("Theory advises no stepsize above 0 here; give a stepsize.")
        raise ScafflixError(f"{name} is {shown(given)}; it must be a finite number above 0.")
    return values


def chosen_stepsize(given: float | None, advised: float, name: str = "stepsize") -> float:
    """The one stepsize of a method that has only one."""
    (value,) = chosen_stepsizes(given, advised, 1, name)
    return float(value)


def chosen_probability(given: float | None, advised: float) -> float:
    """The probability of communication: what the user gave, else what theory advises."""
    if given is None:
        if not LEAST_PROBABILITY <= advised <= 1:
            raise ScafflixError(
                f"Theory advises p = {advised:g}, below {LEAST_PROBABILITY:g}: some client has a "
                "very large condition number or a very small alpha; give p."
            )
        return float(advised)
    p = real_number("p", given, above=True)
    if not LEAST_PROBABILITY <= p <= 1:
        raise ScafflixError(
            f"p is {p:g}; it must be above 0 (at least {LEAST_PROBABILITY:g}) and at most 1."
        )
    return p


def lyapunov(
    alpha: Array,
    gamma: Array,
    p: Array,
    x: Array,
    h: Array | None,
    x_optimal: Array,
    h_optimal: Array,
) -> Array:
    """Psi for one run in which all clients hold the same x (as after every communication).

    A method without control variates has only the first term (h is None).
    """
    gamma_min = gamma.min()
    psi = (gamma_min / gamma * alpha**2).mean() * ((x - x_optimal) ** 2).sum()
    if h is None:
        return psi
    error = ((h - h_optimal) ** 2).sum(axis=tuple(range(1, h.ndim)))
    return psi + gamma_min / p**2 * (gamma * error).mean()


def rounding_floor(x_tilde: Floats, h: Floats, gamma: Floats, mu: Floats, p: float) -> float:
    """Psi of a run that stands still at the solution up to rounding: below it, nothing is said.

    Gradients are rounded to eps (||h_i|| + ||x~_i||/gamma_i), which moves the fixed point by up to
    that over mu_i, and h_i by as much.
    """

    def norms(stack: Floats) -> Floats:
        return np.linalg.norm(stack.reshape(len(gamma), -1), axis=1)

    slack = UNIT * (norms(h) + norms(x_tilde) / gamma)
    points = np.mean(gamma.min() / gamma * (slack / mu) ** 2)
    return float(points + gamma.min() / p**2 * np.mean(gamma * slack**2))


class Certificate(NamedTuple):
    """Measured Psi against the theorem's bound, over the rounds of one run.

    With exact gradients Psi^t / (1 - zeta)^t is a nonnegative supermartingale, so that (Ville)
    the ratio to the bound exceeds c at any time with probability at most 1/c. `chance` is that
    probability for the worst ratio seen: a small one speaks against the run or the constants.
    """

    holds: bool  # the worst ratio is at most 1
    worst_ratio: float
    worst_round: int
    rounds_checked: int  # rounds in which Psi is above rounding
    chance: float | None  # None for stochastic gradients, where the bound is on the mean only


def certify(psi: Floats, bound: Floats, floor: float, exact: bool) -> Certificate | None:
    """Compare round by round, from the start on; None where there is no guarantee to check. A
    round that nobody looked at is NaN.

    A round that takes Psi to 0, or as near as rounding allows it from where it was before, says
    nothing: the bound itself is then 0 or as small.

    >>> certify(np.array([1.0, 0.5, 0.3]), np.array([1.0, 1.0, 0.5]), floor=0.0, exact=True)
    Certificate(holds=True, worst_ratio=0.6, worst_round=2, rounds_checked=2, chance=1.0)
    """
    if not np.isfinite(bound).all():
        return None
    (rounds,) = np.nonzero(np.isfinite(psi))
    psi, bound = psi[rounds], bound[rounds]
    rounding = floor + UNIT**2 * psi[:-1] + np.finfo(np.float64).tiny
    psi, bound, rounds = psi[1:], bound[1:], rounds[1:]
    above = np.flatnonzero(psi > rounding)
    if not len(above):
        return Certificate(True, 0.0, 0, 0, 1.0 if exact else None)
    with np.errstate(divide="ignore"):  # Psi above rounding where the bound is 0: it fails
        ratio = psi[above] / bound[above]
    worst = int(np.argmax(ratio))
    largest = float(ratio[worst])
    chance = min(1.0, 1 / largest) if exact else None
    return Certificate(largest <= 1, largest, int(rounds[above[worst]]), len(above), chance)
