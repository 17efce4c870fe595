from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from scafflix.core.vector import Vector

pytestmark = pytest.mark.usefixtures("float64")


def vector(seed: int) -> Vector:
    random = np.random.default_rng(seed)
    return Vector({"weight": random.normal(size=(3, 2)), "bias": [random.normal(size=4)]})


def flat(v: Vector) -> np.ndarray:
    return np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(v)])


def test_sums_and_differences_are_taken_leaf_by_leaf() -> None:
    a, b, c = vector(0), vector(1), vector(2)
    np.testing.assert_array_equal(flat(a + b - c), flat(a) + flat(b) - flat(c))


@pytest.mark.parametrize("factor", [2.5, np.float64(2.5), jnp.asarray(2.5)])
def test_a_number_of_any_kind_multiplies_from_either_side(factor: object) -> None:
    a = vector(0)
    for product in (factor * a, a * factor):
        assert isinstance(product, Vector)
        np.testing.assert_array_equal(flat(product), 2.5 * flat(a))


def test_a_vector_passes_through_a_compiled_function() -> None:
    a, b = vector(0), vector(1)
    step = jax.jit(lambda x, g, gamma: x - gamma * g)(a, b, 0.5)
    np.testing.assert_allclose(flat(step), flat(a) - 0.5 * flat(b), rtol=1e-15, atol=1e-16)


def test_vectors_of_different_trees_do_not_add_up() -> None:
    with pytest.raises(ValueError, match="bias"):
        vector(0) + Vector({"weight": np.ones((3, 2))})
