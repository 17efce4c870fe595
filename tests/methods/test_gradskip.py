"""GradSkip: Scaffnew's rounds with fewer gradients, and its theorem."""

from __future__ import annotations

import math

import numpy as np
import pytest

import scafflix as sx
from cases import ALPHA, Case, follow
from scafflix.methods import Client, Method
from scafflix.simulate.batch import own_steps, steps_of, uniforms


def gradients_a_round(method: Method, rounds: int = 20_000) -> np.ndarray:
    """The mean number of gradients of each client, as drawn with seed 0."""
    n = len(ALPHA)
    everyone = Client(ALPHA, np.asarray(method.gamma), None, np.ones(n), n)
    steps = steps_of(method, 0, 0, rounds)
    made = [
        np.minimum(K, own_steps(method, everyone, K, uniforms(0, r, np.arange(n), n)))
        for r, K in enumerate(steps.tolist())
    ]
    return np.mean(made, axis=0)


def test_with_the_stepsizes_of_scaffnew_nobody_skips(case: Case) -> None:
    steps = case.plan.gamma / ALPHA**2
    pair = [
        follow(case.problem, case.person, make(case.plan, stepsize=steps))
        for make in (sx.gradskip, sx.i_scaffnew)
    ]
    for one, other in zip(*(course.snapshots for course in pair), strict=True):
        np.testing.assert_allclose(one.x, other.x, rtol=1e-10, atol=1e-11)
        np.testing.assert_allclose(one.h, other.h, rtol=1e-10, atol=1e-11)


def test_the_chance_to_go_on_is_that_of_the_paper(case: Case) -> None:
    kappa = case.plan.constants.kappa
    method = sx.gradskip(case.plan)
    assert method.own_steps is not None
    (q,) = method.own_steps.args
    np.testing.assert_allclose(q, (1 - 1 / kappa) / (1 - 1 / kappa.max()))
    np.testing.assert_allclose(method.p, 1 / math.sqrt(kappa.max()))
    assert method.rate == pytest.approx(sx.i_scaffnew(case.plan).rate)


def test_well_conditioned_clients_compute_fewer_gradients(logistic_case: Case) -> None:
    plan = logistic_case.plan
    kappa, p = plan.constants.kappa, plan.p
    found = gradients_a_round(sx.gradskip(plan))
    q = (1 - 1 / kappa) / (1 - 1 / kappa.max())
    np.testing.assert_allclose(found, 1 / (1 - q * (1 - p)), rtol=0.03)
    assert (found <= 1.03 * np.minimum(kappa, 1 / p)).all()
    assert found.min() < 0.5 / p
    assert found.max() > 0.97 / p


def test_it_takes_the_rounds_of_scaffnew_to_the_flix_optimum(logistic_case: Case) -> None:
    problem, person, plan = logistic_case.problem, logistic_case.person, logistic_case.plan
    rounds = []
    for make in (sx.gradskip, sx.i_scaffnew):
        runs = [sx.Run(person, make(plan), seed) for seed in range(5)]
        gaps = [record.metrics["objective_gap"] for record in sx.sweep(problem, runs, rounds=150)]
        assert max(gap[-1] for gap in gaps) < 1e-10
        rounds.append(np.mean([np.argmax(gap < 1e-6) for gap in gaps]))
    assert rounds[0] < 1.25 * rounds[1]


def test_the_theorem_holds_with_small_stepsizes_and_other_p(logistic_case: Case) -> None:
    problem, person, plan = logistic_case.problem, logistic_case.person, logistic_case.plan
    for p, part in ((0.1, 1.0), (0.4, 0.3)):
        method = sx.gradskip(plan, stepsize=part * plan.gamma / ALPHA**2, p=p)
        runs = [sx.Run(person, method, seed) for seed in range(40)]
        records = sx.sweep(problem, runs, rounds=12)
        psi = np.array([r.metrics["lyapunov"] / r.metrics["lyapunov_bound"] for r in records])
        assert (psi.mean(axis=0) <= 1 + 1e-9).all()
        assert 0 < method.rate.zeta <= p**2 + 1e-12


def test_where_no_constants_are_known_nobody_skips() -> None:
    plan = sx.theory.without_theory(np.ones(2), np.full(2, 0.1), 0.2, sx.gradients.Exact())
    method = sx.gradskip(plan)
    assert method.own_steps is not None
    everyone = Client(np.ones(2), np.asarray(method.gamma), None, np.ones(2), 2)
    drawn = own_steps(method, everyone, 1000, np.array([1e-12, 0.5]))
    assert (drawn > 1000).all()
