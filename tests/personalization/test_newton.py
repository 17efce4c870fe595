from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from scafflix.personalization import newton

pytestmark = pytest.mark.usefixtures("float64")


class Quadratics(NamedTuple):
    """(1/2) <x, H x> - <b, x>, one problem a row."""

    H: jax.Array  # [problems, size, size]
    b: jax.Array

    def evaluate(self, x: jax.Array) -> tuple[jax.Array, jax.Array]:
        image = self.product(x, x)
        return jnp.sum(x * (0.5 * image - self.b), axis=1), image - self.b

    def product(self, x: jax.Array, v: jax.Array) -> jax.Array:
        return jnp.einsum("nij,nj->ni", self.H, v)


def quadratics(conditions: list[float], size: int = 8) -> Quadratics:
    random = np.random.default_rng(0)
    bases = [np.linalg.qr(random.normal(size=(size, size)))[0] for _ in conditions]
    H = [
        Q @ np.diag(np.geomspace(1.0, kappa, size)) @ Q.T
        for Q, kappa in zip(bases, conditions, strict=True)
    ]
    return Quadratics(jnp.asarray(H), jnp.asarray(random.normal(size=(len(H), size))))


@jax.jit
def solve(q: Quadratics, x0: jax.Array) -> newton.Solution:
    return newton.minimize(q.evaluate, q.product, x0)


def test_quadratics_of_any_condition_are_solved_side_by_side() -> None:
    conditions = [1.0, 1e2, 1e4, 1e6]
    q = quadratics(conditions)
    expected = np.linalg.solve(np.asarray(q.H), np.asarray(q.b)[..., None])[..., 0]
    found = solve(q, jnp.ones_like(q.b)).x
    # the rounding of a gradient is that of H x
    for row, kappa in enumerate(conditions):
        np.testing.assert_allclose(found[row], expected[row], rtol=0, atol=1e-14 * kappa + 1e-13)


def test_the_reported_norm_is_that_of_the_gradient_at_the_solution() -> None:
    q = quadratics([1.0, 1e2, 1e4, 1e6])
    solution = solve(q, jnp.ones_like(q.b))
    gradient = q.evaluate(solution.x)[1]
    np.testing.assert_allclose(
        solution.gradient_norm, jnp.linalg.norm(gradient, axis=1), atol=1e-12
    )


def test_a_problem_does_not_depend_on_its_neighbours() -> None:
    q = quadratics([1.0, 1e2, 1e4, 1e6])
    twins = Quadratics(q.H[jnp.array([1, 1, 1, 1])], q.b[jnp.array([1, 1, 1, 1])])
    together = solve(q, jnp.ones_like(q.b)).x[1]
    np.testing.assert_allclose(solve(twins, jnp.ones_like(q.b)).x[0], together, atol=1e-13)


def test_a_start_at_the_optimum_stays_there() -> None:
    q = quadratics([1.0, 1.0, 1.0, 1.0])._replace(b=jnp.zeros((4, 8)))
    solution = solve(q, jnp.zeros((4, 8)))
    assert not np.asarray(solution.x).any()
    assert not np.asarray(solution.gradient_norm).any()


def test_steep_walls_need_shorter_steps_and_are_left() -> None:
    # from x = 20 a full Newton step on sqrt(1 + x^2) jumps to -8000 and further out each time;
    # the minimum of sqrt(1 + x^2) + x/2 is at -1/sqrt(3)
    def evaluate(x: jax.Array) -> tuple[jax.Array, jax.Array]:
        root = jnp.sqrt(1 + x**2)
        return jnp.sum(root + x / 2, axis=1), x / root + 0.5

    starts = jnp.array([[20.0], [-3.0], [0.0]])
    solution = jax.jit(
        lambda x0: newton.minimize(evaluate, lambda x, v: v / jnp.sqrt(1 + x**2) ** 3, x0)
    )(starts)
    np.testing.assert_allclose(solution.x, np.full((3, 1), -1 / np.sqrt(3)), rtol=1e-12)


@pytest.mark.parametrize("scale", [1e-8, 1.0, 1e8])
def test_the_scale_of_the_objective_does_not_matter(scale: float) -> None:
    q = quadratics([1e2, 1e2, 1e2, 1e2])
    scaled = Quadratics(scale * q.H, scale * q.b)
    expected = np.linalg.solve(np.asarray(q.H), np.asarray(q.b)[..., None])[..., 0]
    np.testing.assert_allclose(solve(scaled, jnp.ones_like(q.b)).x, expected, atol=1e-11)


def test_a_small_value_that_is_the_difference_of_larger_ones_is_minimized_to_the_end() -> None:
    """Its rounding is that of the larger ones, as of a loss of examples that are well predicted."""

    def evaluate(x: jax.Array) -> tuple[jax.Array, jax.Array]:
        small = 1e-3 * jnp.sum(jnp.cosh(x - 1), axis=1)
        return (10 + small) - 10, 1e-3 * jnp.sinh(x - 1)

    found = jax.jit(
        lambda x0: newton.minimize(evaluate, lambda x, v: 1e-3 * jnp.cosh(x - 1) * v, x0)
    )(jnp.array([[0.3, 2.7], [1.4, -1.1], [0.2, 0.9]]))
    np.testing.assert_allclose(found.x, np.ones((3, 2)), rtol=1e-12)
