from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import scafflix as sx
from scafflix.models import MODELS, LinearModel

pytestmark = pytest.mark.usefixtures("float64")

LABELS = {"logistic": [-1.0, 1.0], "softmax": [0.0, 1.0, 2.0], "linear": [-3.5, 0.0, 2.0]}


@pytest.fixture(params=MODELS)
def model(request: pytest.FixtureRequest) -> LinearModel:
    return MODELS[request.param]()


def predictions(model: LinearModel, scale: float = 3.0) -> tuple[np.ndarray, np.ndarray]:
    """z for many examples, and their targets."""
    random = np.random.default_rng(0)
    y = random.choice(LABELS[model.name], size=40)
    outputs = (3,) if model.name == "softmax" else ()
    return scale * random.normal(size=(40, *outputs)), y


def test_the_slope_is_the_derivative_of_the_loss(model: LinearModel) -> None:
    z, y = predictions(model)
    automatic = jax.jit(jax.vmap(jax.grad(model.loss)))(jnp.asarray(z), jnp.asarray(y))
    np.testing.assert_allclose(model.slope(z, y), automatic, rtol=1e-12, atol=1e-15)


def test_the_curvature_lies_within_its_bounds(model: LinearModel) -> None:
    for scale in (0.0, 1.0, 10.0):
        z, y = predictions(model, scale)
        hessians = jax.jit(jax.vmap(jax.hessian(model.loss)))(jnp.asarray(z), jnp.asarray(y))
        k = int(np.sqrt(hessians[0].size))
        spectrum = np.linalg.eigvalsh(np.asarray(hessians).reshape(-1, k, k))
        low, high = model.curvature
        assert low - 1e-15 <= spectrum.min()
        assert spectrum.max() <= high + 1e-15


def test_the_largest_curvature_is_attained(model: LinearModel) -> None:
    # two classes that share all probability have curvature 1/2 in the softmax
    z = jnp.array([0.0, 0.0, -800.0]) if model.name == "softmax" else jnp.array(0.0)
    y = jnp.asarray(LABELS[model.name][0])
    hessian = np.asarray(jax.jit(jax.hessian(model.loss))(z, y))
    assert np.linalg.norm(np.atleast_2d(hessian), 2) == pytest.approx(model.curvature[1])


def test_the_logistic_loss_is_right_to_rounding() -> None:
    z = np.concatenate([np.linspace(-40, 40, 4001), np.logspace(-18, 2.8, 400)])
    for y in (-1.0, 1.0):
        found = np.asarray(sx.models.logistic().loss(z, np.full(len(z), y)))
        np.testing.assert_allclose(found, np.logaddexp(0, -y * z), rtol=1e-15, atol=0)


def test_the_logistic_loss_of_a_large_margin_neither_overflows_nor_loses_digits() -> None:
    model = sx.models.logistic()
    z, y = jnp.array([800.0, -800.0, 800.0, -800.0]), jnp.array([1.0, -1.0, -1.0, 1.0])
    np.testing.assert_array_equal(model.loss(z, y), [0.0, 0.0, 800.0, 800.0])
    np.testing.assert_allclose(model.slope(z, y), [0.0, 0.0, 1.0, -1.0], atol=1e-300)


def test_the_cross_entropy_of_large_scores_neither_overflows_nor_loses_digits() -> None:
    model = sx.models.softmax()
    z = jnp.array([[800.0, -800.0, 0.0]] * 2)
    y = jnp.array([0.0, 1.0])
    np.testing.assert_array_equal(model.loss(z, y), [0.0, 1600.0])
    np.testing.assert_allclose(model.slope(z, y), [[0, 0, 0], [1, -1, 0]], atol=1e-300)


@pytest.mark.parametrize("kind", ["logistic", "softmax"])
def test_derivatives_of_large_scores_are_finite(kind: str) -> None:
    model = MODELS[kind]()
    z = jnp.array([800.0, -800.0, 0.0]) if kind == "softmax" else jnp.array(-800.0)
    slope = lambda z: model.slope(z, jnp.array(1.0))  # noqa: E731
    _, bend = jax.jvp(slope, (z,), (jnp.ones_like(z),))
    assert np.isfinite(bend).all()


def test_the_first_label_in_order_is_the_negative_class() -> None:
    targets = sx.models.logistic().encode(np.array(["yes", "no", "no"]))
    assert targets.classes == ("no", "yes")
    np.testing.assert_array_equal(targets.values, [1.0, -1.0, -1.0])


def test_softmax_numbers_the_labels_in_order() -> None:
    targets = sx.models.softmax().encode(np.array([7, 3, 5, 3]))
    assert targets.classes == ("3", "5", "7")
    assert targets.outputs == (3,)
    np.testing.assert_array_equal(targets.values, [2.0, 0.0, 1.0, 0.0])


@pytest.mark.parametrize("labels", [[0, 1, 2], [1, 1, 1]])
def test_logistic_refuses_anything_but_two_labels(labels: list[int]) -> None:
    with pytest.raises(sx.ScafflixError, match=f"two labels.*has {len(set(labels))}"):
        sx.models.logistic().encode(np.array(labels))


def test_softmax_refuses_a_single_label() -> None:
    with pytest.raises(sx.ScafflixError, match="every label is 4"):
        sx.models.softmax().encode(np.array([4, 4]))


def test_softmax_refuses_a_numeric_target() -> None:
    with pytest.raises(sx.ScafflixError, match="1001 distinct labels"):
        sx.models.softmax().encode(np.arange(1001) / 7)


def test_linear_refuses_labels_that_are_no_numbers() -> None:
    with pytest.raises(sx.ScafflixError, match=r"numeric labels.*'spam'"):
        sx.models.linear().encode(np.array(["spam", "ham"]))
