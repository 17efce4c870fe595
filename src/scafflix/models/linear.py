"""Models that see an example only through a linear predictor z = W^T a.

Each is the loss of one example as a function of z, its slope d loss / d z (which autodiff would
give too, at twice the price) and bounds on its curvature, from which a problem derives L_i and
mu_i.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import NDArray

from scafflix.core.errors import ScafflixError
from scafflix.data.federation import Labels
from scafflix.models.network import Network

TERMS = 18  # of the series of artanh: the next is below 1e-18 of the first


class Targets(NamedTuple):
    """Labels as the numbers a loss takes, and what the numbers stand for."""

    values: NDArray[np.float64]
    outputs: tuple[int, ...]  # shape of z for one example
    classes: tuple[str, ...]  # empty for regression


class SparseInputs(NamedTuple):
    """Rows that are mostly zero, each filled up to the nonzeros of the longest."""

    feature: Any  # [batch, nonzeros], which
    value: Any  # [batch, nonzeros], 0 where a row only fills up


class LinearModel(NamedTuple):
    """`loss`, `slope` and `score` take z `[..., *outputs]` and the target `[...]`."""

    name: str
    metric: str  # what `score` measures, averaged over examples
    encode: Callable[[Labels], Targets]
    loss: Callable[[Array, Array], Array]
    slope: Callable[[Array, Array], Array]
    score: Callable[[Array, Array], Array]
    curvature: tuple[float, float]  # bounds on the second derivative of the loss in z
    steepest: float = np.inf  # bound on the norm of the slope


@lru_cache
def as_network(model: LinearModel, dim: int, outputs: tuple[int, ...]) -> Network:
    """The same model for whoever takes networks: one array of parameters, 0 at the start."""

    def init(key: Array) -> Array:
        return jnp.zeros((dim, *outputs), jnp.float64)

    def apply(W: Array, inputs: Array | SparseInputs) -> Array:
        if isinstance(inputs, SparseInputs):
            return jnp.einsum("bk,bk...->b...", inputs.value, W[inputs.feature])
        return jnp.tensordot(inputs, W, 1)

    @jax.custom_jvp
    def loss(z: Array, y: Array) -> Array:
        return model.loss(z, y)

    def change(dz: Array, _: Array, z: Array, y: Array) -> Array:
        steep = model.slope(z, y) * dz
        return jnp.sum(steep, axis=-1) if outputs else steep

    loss.defjvps(change, None)
    return Network(model.name, init, apply, model.metric, loss, model.score)


def _two_classes(labels: Labels) -> Targets:
    classes = np.unique(labels)
    if len(classes) != 2:
        shown = ", ".join(map(str, classes[:5])) + (", ..." if len(classes) > 5 else "")
        raise ScafflixError(
            f"The logistic model needs exactly two labels, but the data has {len(classes)}"
            f" ({shown}); use the softmax model for several classes."
        )
    values = np.where(labels == classes[1], 1.0, -1.0)
    return Targets(values, (), tuple(map(str, classes)))


def _classes(labels: Labels) -> Targets:
    classes, values = np.unique(labels, return_inverse=True)
    if len(classes) < 2:
        raise ScafflixError(
            f"The softmax model needs at least two labels, but every label is {classes[0]}."
        )
    if len(classes) > 1000:
        raise ScafflixError(
            f"The softmax model got {len(classes)} distinct labels, more than 1000; "
            "use the linear model for a numeric target."
        )
    return Targets(values.astype(np.float64), (len(classes),), tuple(map(str, classes)))


def _numbers(labels: Labels) -> Targets:
    try:
        return Targets(np.asarray(labels, dtype=np.float64), (), ())
    except ValueError:
        raise ScafflixError(
            f"The linear model needs numeric labels, but found {str(labels[0])!r}; "
            "use the logistic or the softmax model for classes."
        ) from None


def _log_loss(z: Array, y: Array) -> Array:
    margin = y * z
    return jnp.maximum(-margin, 0) + _log1p(jnp.exp(-jnp.abs(margin)))


def _log1p(e: Array) -> Array:
    """log(1 + e) for e from 0 to 1, to rounding: 2 artanh(s) with s = e / (2 + e), by its series.

    XLA calls the logarithm number by number; this it does for as many as a register holds.
    """
    s = e / (2 + e)
    series = jnp.zeros_like(s)
    for k in reversed(range(TERMS)):
        series = 1 / (2 * k + 1) + s * s * series
    return 2 * s * series


def _log_loss_slope(z: Array, y: Array) -> Array:
    return -y * jax.nn.sigmoid(-y * z)


def _same_sign(z: Array, y: Array) -> Array:
    return jnp.where(z > 0, 1.0, -1.0) == y


def _cross_entropy(z: Array, y: Array) -> Array:
    chosen = jnp.take_along_axis(z, y[..., None].astype(jnp.int32), axis=-1)[..., 0]
    return jax.nn.logsumexp(z, axis=-1) - chosen


def _cross_entropy_slope(z: Array, y: Array) -> Array:
    return jax.nn.softmax(z, axis=-1) - jax.nn.one_hot(y.astype(jnp.int32), z.shape[-1])


def _same_class(z: Array, y: Array) -> Array:
    return jnp.argmax(z, axis=-1) == y


def _half_square(z: Array, y: Array) -> Array:
    return 0.5 * (z - y) ** 2


def _residual(z: Array, y: Array) -> Array:
    return z - y


def _square(z: Array, y: Array) -> Array:
    return (z - y) ** 2


_LOGISTIC = LinearModel(
    "logistic", "accuracy", _two_classes, _log_loss, _log_loss_slope, _same_sign, (0.0, 0.25), 1.0
)
# the Hessian in z is diag(q) - q q^T for probabilities q: eigenvalues in [0, 1/2]
_SOFTMAX = LinearModel(
    "softmax",
    "accuracy",
    _classes,
    _cross_entropy,
    _cross_entropy_slope,
    _same_class,
    (0.0, 0.5),
    float(np.sqrt(2)),
)
_LINEAR = LinearModel(
    "linear", "squared error", _numbers, _half_square, _residual, _square, (1.0, 1.0)
)


def logistic() -> LinearModel:
    """Logistic regression: log(1 + exp(-b z)) with labels b in {-1, 1} (section 4.1)."""
    return _LOGISTIC


def softmax() -> LinearModel:
    """Softmax regression: cross-entropy of k classes, W of shape `[dim, k]`."""
    return _SOFTMAX


def linear() -> LinearModel:
    """Least squares: (z - b)^2 / 2."""
    return _LINEAR
