from __future__ import annotations

import re

import numpy as np
import pytest
from numpy.typing import NDArray

import reference
import scafflix as sx
from cases import ALPHA, ROUNDS, Case
from scafflix.simulate.planning import optima


def unsuitable(case: Case) -> NDArray[np.float64]:
    """h with sum_i h_i = 0 but sum_i alpha_i h_i != 0: what the paper's line 1 would allow."""
    h = np.random.default_rng(0).normal(size=(case.problem.n, *case.problem.shape))
    return h - h.mean(axis=0)


def test_projected_control_variates_satisfy_the_condition(case: Case) -> None:
    h = sx.control.project(unsuitable(case), ALPHA, case.plan.gamma)
    np.testing.assert_allclose(np.einsum("n,n...->...", ALPHA, h), 0, atol=1e-14)


def test_projecting_twice_is_projecting_once(case: Case) -> None:
    once = sx.control.project(unsuitable(case), ALPHA, case.plan.gamma)
    twice = sx.control.project(once, ALPHA, case.plan.gamma)
    np.testing.assert_allclose(twice, once, rtol=1e-13, atol=1e-14)


def test_the_projection_is_the_papers_formula(case: Case) -> None:
    h, gammas, n = unsuitable(case), case.plan.gamma, case.problem.n
    gamma = 1 / np.mean(ALPHA**2 / gammas)
    total = sum(ALPHA[j] * h[j] for j in range(n))
    expected = [h[i] - gamma * ALPHA[i] / (n * gammas[i]) * total for i in range(n)]
    np.testing.assert_allclose(
        sx.control.project(h, ALPHA, gammas), expected, rtol=1e-13, atol=1e-14
    )


def test_the_projection_is_the_nearest_in_the_norm_of_the_lyapunov_function(case: Case) -> None:
    # the way to the projection is orthogonal to every admissible direction
    h, gammas = unsuitable(case), case.plan.gamma
    projected = sx.control.project(h, ALPHA, gammas)
    random = np.random.default_rng(1)
    for _ in range(10):
        direction = random.normal(size=h.shape)
        direction -= np.einsum("n,m,m...->n...", ALPHA, ALPHA, direction) / np.sum(ALPHA**2)
        inner = sum(gammas[i] * np.vdot((h - projected)[i], direction[i]) for i in range(5))
        assert abs(inner) <= 1e-13 * np.linalg.norm(direction)


def test_a_start_whose_weighted_sum_is_not_0_is_refused_with_the_number(case: Case) -> None:
    h = unsuitable(case)
    number = np.linalg.norm(np.einsum("n,n...->...", ALPHA, h))
    with pytest.raises(sx.ScafflixError, match=re.escape(f"= {number:.3g}; it must be 0")):
        sx.run(case.problem, case.person, sx.scafflix(case.plan), rounds=ROUNDS, h0=h)


def test_a_start_that_is_not_finite_is_refused(logistic_case: Case) -> None:
    with pytest.raises(sx.ScafflixError, match="h holds nan"):
        sx.control.check(np.full((5, 6), np.nan), ALPHA)


def test_zero_control_variates_are_accepted(logistic_case: Case) -> None:
    sx.control.check(np.zeros((5, 6)), ALPHA)


def test_a_projected_start_is_accepted_and_converges(logistic_case: Case) -> None:
    problem, person, plan = logistic_case.problem, logistic_case.person, logistic_case.plan
    h = sx.control.project(unsuitable(logistic_case), ALPHA, plan.gamma)
    record = sx.run(problem, person, sx.scafflix(plan), rounds=150, h0=h)
    psi = record.metrics["lyapunov"]
    assert psi[-1] <= 1e-20 * psi[0]


def test_the_refused_start_would_stall(logistic_case: Case) -> None:
    problem, person, plan = logistic_case.problem, logistic_case.person, logistic_case.plan
    (optimum,) = optima(problem, [person])
    thetas = (np.random.default_rng(0).random(600) < plan.p).astype(int)
    gradients = [f.gradient for f in logistic_case.functions]
    h0, stars = unsuitable(logistic_case), np.asarray(person.x_star)
    starts = (h0, sx.control.project(h0, ALPHA, plan.gamma))
    stalled, converged = (
        reference.lyapunov(
            reference.scafflix(
                gradients, stars, ALPHA, plan.gamma, plan.p, np.ones(6), start, thetas
            )[-1],
            ALPHA,
            plan.gamma,
            plan.p,
            optimum.x,
            optimum.h,
        )
        for start in map(np.asarray, starts)
    )
    assert stalled > 1e-2
    assert converged < 1e-20
