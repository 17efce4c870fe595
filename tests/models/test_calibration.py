"""Forecasts in bins: calibrated ones have no error, others the error that they were made with."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from numpy.typing import NDArray

from scafflix.core.precision import in_float64
from scafflix.models import linear, logistic, softmax
from scafflix.models.calibration import BINS, bin_sums, binned, forecast_of, reliability
from scafflix.models.network import Network

MANY = 400_000


@in_float64
def error_of(probability: NDArray[Any], came_true: NDArray[Any]) -> float:
    made = reliability(np.asarray(bin_sums(probability, came_true, np.ones(len(probability)))))
    assert made is not None
    return float(made["error"])


def test_calibrated_forecasts_have_almost_no_error() -> None:
    random = np.random.default_rng(0)
    probability = random.random(MANY)
    came_true = random.random(MANY) < probability
    assert error_of(probability, came_true) < 0.005


@pytest.mark.parametrize("off", [-0.2, 0.1])
def test_forecasts_that_are_off_by_an_amount_have_it_as_their_error(off: float) -> None:
    random = np.random.default_rng(1)
    probability = 0.25 + 0.5 * random.random(MANY)
    came_true = random.random(MANY) < probability + off
    assert error_of(probability, came_true) == pytest.approx(abs(off), abs=0.005)


def test_a_forecaster_that_is_always_sure_is_off_by_its_share_of_mistakes() -> None:
    came_true = np.arange(100) >= 30
    assert error_of(np.ones(100), came_true) == pytest.approx(0.3)


def test_every_forecast_is_in_one_bin_with_others_like_it() -> None:
    probability = np.r_[np.linspace(0, 1, 1001), np.full(9, 0.5)]
    came_true = np.arange(1010) % 3 == 0
    made = reliability(np.asarray(bin_sums(probability, came_true, np.ones(1010))))
    assert made is not None
    assert sum(made["examples"]) == 1010
    for k in range(BINS):
        mine = (probability * BINS).astype(int).clip(0, BINS - 1) == k
        assert made["examples"][k] == mine.sum()
        assert made["forecast"][k] == pytest.approx(probability[mine].mean(), rel=1e-5)
        assert made["came_true"][k] == pytest.approx(came_true[mine].mean(), rel=1e-5)


def test_an_empty_bin_says_nothing_and_no_forecasts_make_no_curve() -> None:
    made = reliability(np.asarray(bin_sums(np.array([0.99]), np.ones(1), np.ones(1))))
    assert made is not None
    assert made["forecast"][:-1] == made["came_true"][:-1] == [None] * (BINS - 1)
    assert reliability(np.zeros((3, BINS))) is None


@in_float64
def test_two_classes_are_one_probability_whichever_model_says_it() -> None:
    random = np.random.default_rng(2)
    z, second = random.normal(size=50), random.random(50) < 0.5
    pair = jnp.stack([jnp.zeros(50), z], axis=-1)
    network = Network("pair", lambda key: None, lambda params, inputs: inputs)
    one = binned(logistic(), jnp.asarray(z), jnp.where(second, 1.0, -1.0))
    for model, labels in ((softmax(), second.astype(float)), (network, second.astype(np.int32))):
        np.testing.assert_allclose(binned(model, pair, jnp.asarray(labels)), one, rtol=1e-6)
    probability = 1 / (1 + np.exp(-z))
    direct = bin_sums(probability, second, np.ones(50))
    np.testing.assert_allclose(one, direct, rtol=1e-6)


@in_float64
def test_of_several_classes_the_one_that_the_model_names_is_forecast() -> None:
    logits = np.random.default_rng(3).normal(size=(40, 5))
    labels = np.random.default_rng(4).integers(0, 5, 40)
    shares = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    expected = bin_sums(shares.max(axis=1), logits.argmax(axis=1) == labels, np.ones(40))
    found = binned(softmax(), jnp.asarray(logits), jnp.asarray(labels, float))
    np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_places_without_a_label_are_no_forecasts() -> None:
    logits = jnp.asarray(np.random.default_rng(5).normal(size=(6, 7, 4)), jnp.float32)
    labels = np.random.default_rng(6).integers(-1, 4, (6, 7)).astype(np.int32)
    network = Network("sequence", lambda key: None, lambda params, inputs: inputs)
    assert binned(network, logits, jnp.asarray(labels))[0].sum() == (labels >= 0).sum()


def test_a_model_whose_loss_knows_no_probabilities_forecasts_nothing() -> None:
    assert forecast_of(linear()) is None
    own = Network("own", lambda key: None, lambda p, a: a, loss=lambda z, y: (z[..., 0] - y) ** 2)
    assert forecast_of(own) is None
    assert not binned(own, jnp.ones((3, 2)), jnp.zeros(3, jnp.int32)).any()
