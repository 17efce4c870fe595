from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.typing import NDArray

import reference
from cases import ALPHA, Case
from scafflix.personalization import flix

pytestmark = pytest.mark.usefixtures("float64")

ALPHAS = np.array([ALPHA, np.full(5, 0.5), np.ones(5)])
evaluate = jax.jit(flix.evaluate)


def objective(case: Case, alpha: NDArray[np.float64]) -> reference.Function:
    return reference.average(case.mixed(alpha))


def optimum(case: Case, alphas: NDArray[np.float64] = ALPHAS) -> flix.Optimum:
    return flix.optimum(case.problem.losses, jnp.asarray(alphas), case.person.x_star)


def points(case: Case, seed: int = 0) -> NDArray[np.float64]:
    return np.random.default_rng(seed).normal(size=(len(ALPHAS), *case.problem.shape))


def test_value_and_gradient_are_those_of_the_reference(case: Case) -> None:
    x = points(case)
    values, gradients, _ = evaluate(case.problem.losses, ALPHAS, case.person.x_star, x)
    for r, alpha in enumerate(ALPHAS):
        f = objective(case, alpha)
        np.testing.assert_allclose(values[r], f.value(x[r]), rtol=1e-13)
        np.testing.assert_allclose(gradients[r], f.gradient(x[r]), rtol=1e-11, atol=1e-13)


def test_the_gradient_is_the_slope_of_the_value(case: Case) -> None:
    x, v, step = points(case), points(case, seed=1), 1e-6
    ahead, behind = (
        evaluate(case.problem.losses, ALPHAS, case.person.x_star, x + s * v)[0]
        for s in (step, -step)
    )
    _, gradients, _ = evaluate(case.problem.losses, ALPHAS, case.person.x_star, x)
    slope = np.sum((gradients * v).reshape(len(x), -1), axis=1)
    np.testing.assert_allclose((ahead - behind) / (2 * step), slope, rtol=1e-6, atol=1e-8)


def test_the_optimum_is_that_of_scipy(case: Case) -> None:
    found = optimum(case)
    for r, alpha in enumerate(ALPHAS):
        f = objective(case, alpha)
        expected = reference.minimizer(f, case.problem.shape)
        np.testing.assert_allclose(found.x[r], expected, atol=1e-6)
        np.testing.assert_allclose(found.value[r], f.value(expected), rtol=1e-12)


def test_the_gradient_vanishes_at_the_optimum_by_the_reference(case: Case) -> None:
    found = optimum(case)
    for r, alpha in enumerate(ALPHAS):
        assert np.linalg.norm(objective(case, alpha).gradient(np.asarray(found.x[r]))) <= 1e-12


def test_the_optimal_control_variates_are_the_gradients_at_the_optimal_mixtures(
    case: Case,
) -> None:
    found, stars = optimum(case), np.asarray(case.person.x_star)
    for i, f in enumerate(case.functions):
        mixture = ALPHA[i] * np.asarray(found.x[0]) + (1 - ALPHA[i]) * stars[i]
        np.testing.assert_allclose(found.h[0, i], f.gradient(mixture), rtol=1e-9, atol=1e-12)


def test_the_optimal_control_variates_satisfy_the_condition_on_the_start(case: Case) -> None:
    found = optimum(case)
    total = np.einsum("rn,rn...->r...", ALPHAS, np.asarray(found.h))
    np.testing.assert_allclose(total, 0, atol=1e-11)


def test_an_optimum_does_not_depend_on_its_neighbours(case: Case) -> None:
    alone, together = optimum(case, ALPHAS[[1, 1, 1]]), optimum(case)
    np.testing.assert_allclose(alone.x[0], together.x[1], atol=1e-12)


def test_equal_local_optima_are_the_optimum_for_every_alpha(linear_case: Case) -> None:
    star = np.broadcast_to(np.asarray(linear_case.person.x_star[0]), (5, 6))
    # all f_i replaced by f_1: shift nothing, mix with the same point
    losses = linear_case.problem.take(np.array([0])).losses
    found = flix.optimum(losses, jnp.array([[0.3]]), jnp.asarray(star[:1]))
    np.testing.assert_allclose(found.x[0], star[0], atol=1e-9)
