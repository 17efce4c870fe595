from __future__ import annotations

from functools import partial

import jax
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

import miniature
import scafflix as sx
from miniature import N
from scafflix.core.store import Store
from scafflix.problems.curvature import curvatures, individual_stepsizes
from scafflix.problems.rows import Rows, objective


def largest_eigenvalues(problem: sx.Problem, x_star: Store) -> list[float]:
    """By the whole Hessian of every f_i."""
    loss = partial(objective, problem.network, problem.l2)
    found = []
    for i in range(problem.n):
        x = jax.tree.map(lambda leaf: leaf[0], x_star.read(np.array([i])))
        point, tree = ravel_pytree(x)
        train = problem.train
        rows = slice(train.first[i], train.first[i] + train.counts[i])
        own = Rows(train.rows.inputs[rows], train.rows.labels[rows])
        hessian = jax.jit(jax.hessian(lambda v, tree=tree, own=own: loss(tree(v), *own)[0]))(point)
        found.append(np.abs(np.linalg.eigvalsh(np.asarray(hessian, float))).max())
    return found


@pytest.mark.parametrize(("hidden", "l2"), [((), 0.0), ((4,), 0.0), ((4,), 0.3)])
def test_the_curvature_is_the_largest_eigenvalue_of_the_hessian(
    hidden: tuple[int, ...], l2: float
) -> None:
    problem = miniature.problem(hidden, l2)
    x_star = miniature.points(problem)
    found = curvatures(problem, x_star)
    np.testing.assert_allclose(found, largest_eigenvalues(problem, x_star), rtol=0.02)


def test_the_curvature_at_one_point_is_that_of_a_store_full_of_it() -> None:
    problem = miniature.problem((4,), 0.0)
    x = problem.start(0)
    full = Store(problem.template, N)
    full.write(np.arange(N), jax.tree.map(lambda leaf: np.stack([leaf] * N), x))
    np.testing.assert_allclose(curvatures(problem, x), curvatures(problem, full), rtol=1e-5)


def test_stepsizes_are_inversely_proportional_to_the_curvature() -> None:
    L = np.array([3.0, 1.0, 5.0, 2.0, 4.0])
    gamma = individual_stepsizes(0.1, L)
    np.testing.assert_allclose(gamma * L, 0.1 * 3.0)


def test_the_median_client_has_the_given_stepsize() -> None:
    assert np.median(individual_stepsizes(0.1, np.array([3.0, 1.0, 50.0]))) == pytest.approx(0.1)


def test_a_flat_client_takes_no_leap() -> None:
    gamma = individual_stepsizes(0.1, np.array([1e-9, 1.0, 2.0]))
    assert gamma.max() <= 1.0 + 1e-12


def test_stepsizes_are_finite_where_nothing_curves() -> None:
    # at a point from which every rectifier is off, say
    assert np.isfinite(individual_stepsizes(0.1, np.zeros(3))).all()
