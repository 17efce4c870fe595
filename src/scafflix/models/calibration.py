"""Whether what a classifier calls likely comes true.

Of two classes the forecast is the probability of the second, of several that of the class which
the model names. Forecasts go into bins of equal width, of which only sums are kept. The expected
calibration error is the distance between what was forecast and what came true in a bin, averaged
over bins by how many forecasts they hold.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import NDArray

from scafflix.models.linear import LinearModel, logistic, softmax
from scafflix.models.network import Network, cross_entropy, is_counted

BINS = 15
SUMS = ("examples", "forecast", "came_true")  # rows of the sums

# outputs and labels to the probability that something comes true, and whether it did
Forecast = Callable[[Array, Array], tuple[Array, Array]]


def forecast_of(model: LinearModel | Network) -> Forecast | None:
    """How a model forecasts; None for one whose loss does not read its outputs as probabilities."""
    if model.loss is logistic().loss:
        return _of_the_positive
    return _of_a_class if model.loss in (softmax().loss, cross_entropy) else None


def _of_the_positive(z: Array, y: Array) -> tuple[Array, Array]:
    return jax.nn.sigmoid(z), y > 0


def _of_a_class(logits: Array, labels: Array) -> tuple[Array, Array]:
    probability = jax.nn.softmax(logits, axis=-1)
    if logits.shape[-1] == 2:
        return probability[..., 1], labels == 1
    return jnp.max(probability, axis=-1), jnp.argmax(logits, axis=-1) == labels


def forecasts(classes: Sequence[str]) -> str:
    """Whose probability is forecast.

    >>> forecasts(["benign", "malignant"]), forecasts(["a", "b", "c"])
    ('malignant', 'the class that the model names')
    """
    return classes[1] if len(classes) == 2 else "the class that the model names"


def binned(model: LinearModel | Network, outputs: Array, labels: Array) -> Array:
    """The sums `[3, BINS]` over entries that have a label; zeros of a model without forecasts."""
    forecast = forecast_of(model)
    if forecast is None:
        return jnp.zeros((len(SUMS), BINS), outputs.dtype)
    counted = is_counted(labels)
    return bin_sums(*forecast(outputs, labels), counted)


def bin_sums(probability: Array, came_true: Array, counted: Array) -> Array:
    """How many forecasts are in each bin, the sum of them, and how many came true."""
    kind = probability.dtype
    place = jnp.clip(jnp.floor(probability * BINS), 0, BINS - 1).astype(jnp.int32).ravel()
    weight = counted.astype(kind)
    rows = jnp.stack([weight, weight * probability, weight * came_true], axis=-1)
    return jax.ops.segment_sum(rows.reshape(-1, len(SUMS)), place, BINS).T


def reliability(sums: NDArray[Any]) -> dict[str, Any] | None:
    """The curve in plain numbers, None in a bin that is empty, with the expected calibration
    error; None of no forecasts.

    >>> sums = np.zeros((3, BINS))
    >>> sums[:, 3], sums[:, 12] = (10, 2.5, 3), (30, 25, 27)
    >>> made = reliability(sums)
    >>> made["forecast"][3], made["came_true"][3], round(made["error"], 3)
    (0.25, 0.3, 0.062)
    """
    count, forecast, came_true = np.asarray(sums, float)
    if not count.sum():
        return None

    def mean(total: NDArray[Any]) -> list[float | None]:
        return [float(s / c) if c else None for s, c in zip(total, count, strict=True)]

    return {
        "error": float(np.abs(forecast - came_true).sum() / count.sum()),
        "examples": [int(c) for c in count],
        "forecast": mean(forecast),
        "came_true": mean(came_true),
    }
