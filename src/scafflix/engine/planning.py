"""What is worked out before a run: who takes part, the optimum, the constants, the advice."""

from __future__ import annotations

from collections.abc import Sequence

import jax
import numpy as np
from jax import Array

from scafflix import flix, theory
from scafflix.errors import ScafflixError
from scafflix.flix import Optimum
from scafflix.gradients import Exact, Gradient, check_batch
from scafflix.personalize import Personalization
from scafflix.problem import Problem
from scafflix.theory import Plan


def participants(problem: Problem, person: Personalization) -> tuple[Problem, Personalization]:
    """Only the clients with alpha_i > 0: the others neither compute nor communicate.

    Where nobody takes part, theory still speaks of what alpha = 1 would need.
    """
    if not len(person.active):
        return problem, person.at(1.0)
    return problem.take(person.active), person.take(person.active)


def optima(problem: Problem, persons: Sequence[Personalization]) -> list[Optimum]:
    """The FLIX optimum of each personalization, all at once; every client must take part."""
    alphas = np.array([person.alpha for person in persons])
    distinct, which = np.unique(alphas, axis=0, return_inverse=True)
    found = flix.optimum(problem.losses, jax.device_put(distinct), persons[0].x_star)
    found = jax.tree.map(np.asarray, found)
    return [jax.tree.map(lambda leaf, k=k: leaf[k], found) for k in which]


def plan(
    problem: Problem,
    person: Personalization,
    *,
    gradient: Gradient | None = None,
    epsilon: float | None = None,
) -> Plan:
    """Constants of the clients that take part, and the stepsizes and p that theory advises."""
    gradient = gradient or Exact()
    if epsilon is not None and not 0 < epsilon < np.inf:
        raise ScafflixError(f"epsilon is {epsilon}; it must be a finite number above 0.")
    problem, person = participants(problem, person)
    check_batch(gradient, problem.federation)

    def x_optimal() -> Array:
        (optimum,) = optima(problem, [person])
        return person.mix(optimum.x)

    A, C = gradient.expected_smoothness(problem, problem.constants, x_optimal)
    return theory.advise(person.alpha, problem.constants, gradient, A, C, epsilon)
