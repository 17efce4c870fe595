"""Networks against plain formulations of the same mathematics."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen
from jax import Array, lax

import scafflix as sx
from scafflix.models import Network, Params, cnn, lstm, mean_loss, parameter_count, tallies
from scafflix.models.cnn import convolve, convolve_and_pool
from scafflix.models.lstm import recur

NETWORKS = {"cnn": cnn(7), "lstm": lstm(symbols=11, embedding=3, units=5)}


def batch(name: str, size: int = 3) -> tuple[Array, Array]:
    random = np.random.default_rng(1)
    if name == "cnn":
        inputs = random.integers(0, 256, (size, 28, 28), dtype=np.uint8)
        return jnp.asarray(inputs), jnp.asarray(random.integers(0, 7, size, dtype=np.int32))
    codes = random.integers(0, 11, (2, size, 6), dtype=np.uint8)
    return jnp.asarray(codes[0]), jnp.asarray(codes[1], jnp.int32)


def normal(seed: int, *shape: int) -> Array:
    return jax.random.normal(jax.random.key(seed), shape, jnp.float32)


def assert_same(a: Params, b: Params, tolerance: float = 1e-4) -> None:
    def check(x: Array, y: Array) -> None:
        assert x.dtype == y.dtype
        assert jnp.linalg.norm(x - y) <= tolerance * jnp.linalg.norm(y)

    jax.tree.map(check, a, b)


def values_and_slopes(f: Callable[..., Array], *arguments: Array) -> tuple[Array, ...]:
    value, pull = jax.vjp(f, *arguments)
    return (value, *pull(normal(9, *value.shape)))


def plain_convolve(images: Array, weights: Array) -> Array:
    return lax.conv_general_dilated(
        images, weights, (1, 1), "VALID", dimension_numbers=("NHWC", "OHWI", "NHWC")
    )


def plain_pool(images: Array) -> Array:
    return lax.reduce_window(images, -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")


def plain_convolve_and_pool(images: Array, weights: Array) -> Array:
    return plain_pool(plain_convolve(images, weights))


def plain_recur(drive: Array, weight: Array) -> Array:
    def step(carry: tuple[Array, Array], now: Array) -> tuple[tuple[Array, Array], Array]:
        state, cell = carry
        i, f, g, o = jnp.split(now + state @ weight, 4, axis=-1)
        cell = jax.nn.sigmoid(f) * cell + jax.nn.sigmoid(i) * jnp.tanh(g)
        state = jax.nn.sigmoid(o) * jnp.tanh(cell)
        return (state, cell), state

    zero = jnp.zeros((drive.shape[1], len(weight)), drive.dtype)
    return lax.scan(step, (zero, zero), drive)[1]


@pytest.mark.parametrize(
    ("ours", "plain", "shapes"),
    [
        (convolve, plain_convolve, [(2, 10, 9, 4), (5, 3, 3, 4)]),
        (convolve_and_pool, plain_convolve_and_pool, [(2, 10, 8, 3), (5, 3, 3, 3)]),
        (recur, plain_recur, [(7, 3, 20), (5, 20)]),
    ],
    ids=["convolve", "convolve_and_pool", "recur"],
)
def test_a_kernel_equals_the_plain_formulation(
    ours: Callable[..., Array], plain: Callable[..., Array], shapes: list[tuple[int, ...]]
) -> None:
    arguments = [normal(k, *shape) for k, shape in enumerate(shapes)]
    assert_same(values_and_slopes(ours, *arguments), values_and_slopes(plain, *arguments))


def test_a_tie_in_a_pool_passes_its_slope_on_once() -> None:
    images, weights = jnp.ones((1, 4, 4, 1), jnp.float32), jnp.zeros((1, 3, 3, 1), jnp.float32)
    slope = jax.grad(lambda w: convolve_and_pool(images, w).sum())(weights)
    assert slope.ravel().tolist() == [1] * 9


def plain_cnn(params: Params, images: Array) -> Array:
    x = (1 - images.astype(jnp.float32) / 255)[..., None]
    for layer in ("conv1", "conv2"):
        x = jax.nn.relu(plain_convolve(x, params[layer]["weight"]) + params[layer]["bias"])
    x = plain_pool(x).reshape(len(images), -1)
    x = jax.nn.relu(x @ params["hidden"]["weight"] + params["hidden"]["bias"])
    return x @ params["output"]["weight"] + params["output"]["bias"]


def plain_lstm(params: Params, codes: Array) -> Array:
    x = params["embedding"][codes].swapaxes(0, 1)
    for layer in params["layers"]:
        x = plain_recur(x @ layer["inputs"] + layer["bias"], layer["states"])
    return (x @ params["output"]["weight"] + params["output"]["bias"]).swapaxes(0, 1)


PLAIN = {"cnn": plain_cnn, "lstm": plain_lstm}


@pytest.mark.parametrize("name", NETWORKS)
def test_loss_gradient_and_curvature_equal_those_of_the_plain_network(name: str) -> None:
    network = NETWORKS[name]
    params, v = (network.init(jax.random.key(k)) for k in (0, 1))
    # biases away from zero, where relus and pools have ties
    params = jax.tree.map(lambda a: a + 0.01 * normal(5, *a.shape), params)

    @partial(jax.jit, static_argnums=0)
    def derivatives(network: Network, x: Params) -> tuple[Array, Params, Params]:
        loss = partial(mean_loss, network)

        def along(x: Params) -> Array:
            slopes = jax.grad(loss)(x, *batch(name))
            return jax.tree.reduce(jnp.add, jax.tree.map(jnp.vdot, slopes, v))

        value, slopes = jax.value_and_grad(loss)(x, *batch(name))
        return value, slopes, jax.grad(along)(x)

    plain = network._replace(apply=PLAIN[name])
    assert_same(derivatives(network, params), derivatives(plain, params))


def test_the_cnn_is_differentiable_forward_over_reverse() -> None:
    network = NETWORKS["cnn"]
    x, v = (network.init(jax.random.key(k)) for k in (0, 1))
    gradient = jax.grad(lambda x: mean_loss(network, x, *batch("cnn")))
    product = jax.jvp(gradient, (x,), (v,))[1]
    assert all(jnp.isfinite(leaf).all() for leaf in jax.tree.leaves(product))


@pytest.mark.parametrize(("network", "count"), [(cnn(), 1_206_590), (lstm(), 820_522)])
def test_networks_have_the_parameters_of_the_literature(network: Network, count: int) -> None:
    shapes = jax.eval_shape(network.init, jax.random.key(0))
    assert parameter_count(shapes) == count
    assert {leaf.dtype for leaf in jax.tree.leaves(shapes)} == {jnp.dtype(jnp.float32)}


@pytest.mark.parametrize("name", NETWORKS)
def test_logits_stay_in_single_precision(name: str) -> None:
    network = NETWORKS[name]
    params = network.init(jax.random.key(0))
    results = (network.apply(params, batch(name)[0]), *tallies(network, params, *batch(name)))
    assert {result.dtype for result in results} == {jnp.dtype(jnp.float32)}


@pytest.mark.parametrize("make", [cnn, lstm])
def test_the_same_arguments_give_the_same_network(make: Callable[[], Network]) -> None:
    assert make() is make()
    assert hash(make()) == hash(make())


@pytest.mark.parametrize("name", NETWORKS)
def test_tallies_add_up_to_the_mean_loss_without_the_labels_below_zero(name: str) -> None:
    network = NETWORKS[name]
    params = network.init(jax.random.key(0))
    inputs, labels = batch(name)
    labels = labels.at[0].set(-1)
    losses, scores, counts = tallies(network, params, inputs, labels)
    assert losses[0] == scores[0] == counts[0] == 0
    expected = float(mean_loss(network, params, inputs[1:], labels[1:]))
    assert float(losses.sum() / counts.sum()) == pytest.approx(expected, rel=1e-5)
    nothing = mean_loss(network, params, inputs, jnp.full_like(labels, -1))
    assert nothing == 0


class FlaxModel(linen.Module):
    normalize: bool = False

    @linen.compact
    def __call__(self, images: Array) -> Array:
        x = images.astype(jnp.float32).reshape(len(images), -1)
        x = linen.BatchNorm(use_running_average=True)(x) if self.normalize else x
        return linen.Dense(7)(x)


class EquinoxModel(eqx.Module):
    layer: eqx.nn.Linear

    def __call__(self, image: Array) -> Array:
        return self.layer(image.astype(jnp.float32).ravel())


def test_a_flax_module_becomes_a_network() -> None:
    images, labels = batch("cnn")
    network = sx.models.from_flax(FlaxModel(), images)
    params = network.init(jax.random.key(0))
    expected = FlaxModel().apply({"params": params}, images)
    assert_same(network.apply(params, images), expected)
    slopes = jax.grad(lambda x: mean_loss(network, x, images, labels))(params)
    assert jax.tree.structure(slopes) == jax.tree.structure(params)


def test_an_equinox_module_becomes_a_network() -> None:
    images, labels = batch("cnn")
    module = EquinoxModel(eqx.nn.Linear(784, 7, key=jax.random.key(0), dtype=jnp.float32))
    network = sx.models.from_equinox(module, name="mine")
    params = network.init(jax.random.key(1))
    assert network.name == "mine"
    assert_same(network.apply(params, images), jnp.stack([module(image) for image in images]))
    slopes = jax.grad(lambda x: mean_loss(network, x, images, labels))(params)
    assert jax.tree.structure(slopes) == jax.tree.structure(params)


def test_modules_that_cannot_be_networks_are_refused() -> None:
    images, _ = batch("cnn")
    with pytest.raises(sx.ScafflixError, match=r"batch_stats besides its parameters"):
        sx.models.from_flax(FlaxModel(normalize=True), images).init(jax.random.key(0))
    with pytest.raises(sx.ScafflixError, match=r"takes a flax.linen module, not int"):
        sx.models.from_flax(3, images)
    with pytest.raises(sx.ScafflixError, match=r"takes an equinox.Module, not int"):
        sx.models.from_equinox(3)


@pytest.mark.parametrize(
    ("library", "call"),
    [
        ("flax", lambda: sx.models.from_flax(None, jnp.zeros((1, 2)))),
        ("equinox", lambda: sx.models.from_equinox(None)),
    ],
)
def test_a_missing_library_is_named(
    library: str, call: Callable[[], Network], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(sx.ScafflixError, match=f"pip install {library}"):
        call()
