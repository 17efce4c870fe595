"""What is worked out before a run: who takes part, the optimum, the constants, the advice."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import jax
import numpy as np

from scafflix import theory
from scafflix.core.arguments import real_number
from scafflix.core.digest import difference, digest_of
from scafflix.core.errors import ScafflixError
from scafflix.core.precision import in_float64
from scafflix.core.types import Floats
from scafflix.gradients import (
    Exact,
    Gradient,
    Minibatch,
    Reduced,
    check_batch,
    checked_gradient,
)
from scafflix.methods.method import Method
from scafflix.personalization import flix
from scafflix.personalization.flix import Optimum
from scafflix.personalization.personalize import Personalization, check_person
from scafflix.personalization.rules.choosing import rule_for
from scafflix.problems.curvature import curvatures, individual_stepsizes
from scafflix.problems.problem import Problem, check_problem
from scafflix.simulate.schedule import check_sampled
from scafflix.theory import Plan

FEW = 8  # clients whose alphas fit into a sentence
BATCH, PROBABILITY = 20, 0.2  # of a network, unless others are given


def participants(problem: Problem, person: Personalization) -> tuple[Problem, Personalization]:
    """Only the clients with alpha_i > 0: the others neither compute nor communicate.

    Where nobody takes part, theory still speaks of what alpha = 1 would need.
    """
    if not len(person.active):
        return problem, person.at(1.0)
    return problem.take(person.active), person.take(person.active)


def made_for(problem: Problem, person: Personalization) -> dict[str, Any]:
    """What a plan is for: the functions, how their smoothness is known, and every alpha_i."""
    alpha = person.alpha.tolist() if problem.n <= FEW else digest_of(person.alpha)
    return {**problem.functions, "smoothness": problem.smoothness, "alpha": alpha}


def check_method(problem: Problem, person: Personalization, method: Method) -> None:
    """Refuse a method whose stepsizes are those of other functions or another alpha."""
    person.check(problem)
    clients = len(person.active) or problem.n
    if np.shape(method.gamma) != (clients,):
        raise ScafflixError(
            f"The method {method.name} has stepsizes of shape {np.shape(method.gamma)}; it must "
            f"have one for each of the {clients} clients that take part."
        )
    if person.rule is not None or person.after is not None:
        check_choice(person.rule, method)
    if person.rule is not None:
        rule_for(person.rule, problem)
    if method.made_for is None:
        return
    if found := difference(method.made_for, made_for(problem, person)):
        raise ScafflixError(
            f"The method {method.name} was planned for something else: {found}; make it from "
            "plan(problem, person)."
        )


def check_choice(rule: str | None, method: Method) -> None:
    """Refuse to mix what is no mixture, by a rule or after the rounds."""
    if not method.mixes:
        asked = f"alpha is {rule!r}" if rule else "optima is 'after'"
        other = "alpha a number" if rule else "optima common or none"
        raise ScafflixError(
            f"{asked}, which mixes the global model with the clients' own at the end, but with "
            f"{method.name} clients take home models that it made; give {other}."
        )


@in_float64
def optima(problem: Problem, persons: Sequence[Personalization]) -> list[Optimum]:
    """The FLIX optimum of each personalization, all at once; every client must take part."""
    alphas = np.array([person.alpha for person in persons])
    distinct, which = np.unique(alphas, axis=0, return_inverse=True)
    found = flix.optimum(problem.losses, jax.device_put(distinct), persons[0].points)
    found = jax.tree.map(np.asarray, found)
    return [jax.tree.map(lambda leaf, k=k: leaf[k], found) for k in which]


def plan(
    problem: Problem,
    person: Personalization,
    *,
    gradient: Gradient | None = None,
    epsilon: float | None = None,
    stepsize: float | None = None,
    individual: bool = False,
) -> Plan:
    """Constants of the clients that take part, and the stepsizes and p that theory advises.

    Of a network nobody knows constants: its plan has minibatches of 20, p = 0.2 and the given
    stepsize or the network's usual one (0.1 unless it says otherwise), the same for all clients, or
    in inverse proportion to their curvatures at x_i*.
    """
    check_problem(problem)
    check_person(person)
    epsilon = None if epsilon is None else real_number("epsilon", epsilon, above=True)
    if gradient is None:
        gradient = Exact() if problem.linear else Minibatch(BATCH)
    gradient = checked_gradient(gradient)
    person.check(problem)
    origin = made_for(problem, person)
    if not problem.linear:
        if epsilon is not None:
            raise ScafflixError("epsilon needs constants, and a network has none; leave it out.")
        check_batch(gradient, problem.federation)
        check_sampled(gradient, "zero")
        advice = _for_network(problem, person, gradient, stepsize, individual)
    else:
        if stepsize is not None or individual:
            raise ScafflixError(
                "A linear model's stepsizes are planned by theory; give stepsize to the method, "
                "and leave out individual."
            )
        advice = _by_theory(problem, person, gradient, epsilon)
    return replace(advice, made_for=origin)


@in_float64
def _by_theory(
    problem: Problem, person: Personalization, gradient: Gradient, epsilon: float | None
) -> Plan:
    """What the constants of the clients that take part allow."""
    problem, person = participants(problem, person)
    check_batch(gradient, problem.federation)

    def x_optimal() -> Floats:
        (optimum,) = optima(problem, [person])
        return person.mix(optimum.x)

    if isinstance(gradient, Reduced):
        gradient = replace(gradient, counts=problem.federation.train.counts)
    A, C = gradient.expected_smoothness(problem, problem.constants, x_optimal)
    return theory.advise(person.alpha, problem.constants, gradient, A, C, epsilon)


def _for_network(
    problem: Problem,
    person: Personalization,
    gradient: Gradient,
    stepsize: float | None,
    individual: bool,
) -> Plan:
    """Chosen stepsizes for the clients that take part; where none does, as for alpha = 1."""
    base = theory.chosen_stepsize(stepsize, problem.network.stepsize)
    gamma = np.full(problem.n, base)
    if individual:
        assert person.start is not None
        where = person.start.x if person.x_star is None else person.x_star
        gamma = individual_stepsizes(base, curvatures(problem, where))
    active, alpha = person.active, person.alpha
    if not len(active):
        active, alpha = np.arange(problem.n), np.ones(problem.n)
    return theory.without_theory(alpha[active], gamma[active], PROBABILITY, gradient)
