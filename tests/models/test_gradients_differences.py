"""The gradient of every model against central differences of its value, in float64."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.typing import NDArray

from cases import KINDS, problem
from scafflix.models import Network, cnn, lstm, mean_loss
from scafflix.models.dense import dense

pytestmark = pytest.mark.usefixtures("float64")

STEP = 1e-5

Value = Callable[[NDArray[np.float64]], float]


def differences(
    value: Value, x: NDArray[np.float64], places: NDArray[np.int64]
) -> NDArray[np.float64]:
    """(f(x + s e_k) - f(x - s e_k)) / 2s at the chosen places of a flat point."""
    slopes = []
    for k in places:
        step = np.zeros_like(x)
        step[k] = STEP
        slopes.append((value(x + step) - value(x - step)) / (2 * STEP))
    return np.array(slopes)


@pytest.mark.parametrize("kind", KINDS)
def test_every_coordinate_of_a_linear_models_gradients(kind: str) -> None:
    small = problem(kind)
    points = np.random.default_rng(7).normal(size=(small.n, *small.shape))
    size = points[0].size
    step = STEP * np.eye(size).reshape(size, 1, *small.shape)  # f_i depends on x_i alone
    moved = jnp.asarray(np.concatenate([points + step, points - step]))
    values = np.asarray(small.losses.values_and_gradients(moved)[0])
    found = ((values[:size] - values[size:]) / (2 * STEP)).T
    gradients = small.losses.gradients(jnp.asarray(points)[None])[0]
    assert gradients.dtype == np.float64
    np.testing.assert_allclose(gradients.reshape(small.n, size), found, rtol=1e-7, atol=1e-8)


def images(random: np.random.Generator) -> tuple[Any, Any]:
    return random.integers(0, 256, (2, 28, 28), dtype=np.uint8), random.integers(0, 5, 2)


def codes(random: np.random.Generator) -> tuple[Any, Any]:
    labels = random.integers(-1, 7, (3, 6))  # -1: nothing to predict
    return random.integers(0, 7, (3, 6), dtype=np.uint8), labels


def rows(random: np.random.Generator) -> tuple[Any, Any]:
    return random.normal(size=(8, 4)), random.integers(0, 3, 8)


NETWORKS: dict[str, tuple[Network, Any, int | None]] = {
    # network, its examples, how many numbers of each array are moved (None: all)
    "softmax regression": (dense(4, 3, ()), rows, None),
    "dense": (dense(4, 3, (6, 5)), rows, None),
    "lstm": (lstm(symbols=7, embedding=3, units=4, layers=2), codes, None),
    "cnn": (cnn(5), images, 4),
}


@pytest.mark.parametrize("name", NETWORKS)
def test_a_networks_gradient_array_by_array(name: str) -> None:
    network, make, many = NETWORKS[name]
    random = np.random.default_rng(3)
    batch = tuple(map(jnp.asarray, make(random)))
    params = jax.tree.map(
        # away from zero biases, where rectifiers and pools have corners
        lambda leaf: np.asarray(leaf, np.float64) + 0.05 * random.normal(size=leaf.shape),
        network.init(jax.random.key(0)),
    )
    loss = jax.jit(lambda tree: mean_loss(network, tree, *batch))
    leaves, structure = jax.tree.flatten(params)
    gradient = jax.tree.leaves(jax.jit(jax.grad(loss))(params))
    assert {leaf.dtype for leaf in gradient} == {np.dtype(np.float64)}
    for number, (leaf, slopes) in enumerate(zip(leaves, gradient, strict=True)):

        def value(
            flat: NDArray[np.float64], number: int = number, shape: tuple[int, ...] = leaf.shape
        ) -> float:
            moved = [*leaves[:number], flat.reshape(shape), *leaves[number + 1 :]]
            return float(loss(jax.tree.unflatten(structure, moved)))

        places = random.permutation(leaf.size)[:many]
        found = differences(value, leaf.ravel(), places)
        np.testing.assert_allclose(np.asarray(slopes).ravel()[places], found, rtol=1e-5, atol=1e-8)
    assert sum(float(jnp.abs(slopes).sum()) for slopes in gradient) > 0.1
