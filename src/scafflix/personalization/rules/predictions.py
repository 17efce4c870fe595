"""Linear models by what they predict: z of every example, and the loss along a client's segment."""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import NDArray

from scafflix.core.precision import in_float64
from scafflix.core.types import Floats
from scafflix.data.federation import Examples
from scafflix.models import LinearModel
from scafflix.personalization.rules.contract import GRID
from scafflix.problems.problem import Problem

AT_ONCE = 2**22  # numbers of a block of examples


class Predictions(NamedTuple):
    """Of the examples of all clients, one after the other."""

    own: Floats  # [examples, *outputs], by x_i*
    common: Floats  # the same by x


def predictions(examples: Examples, x_star: Floats, x: Floats) -> Predictions:
    """What x_i* and x say of each example."""
    return Predictions(own_predictions(examples, x_star), examples.features @ x)


def own_predictions(examples: Examples, x_star: Floats) -> Floats:
    """What x_i* says of each example."""
    parts = zip(spans(examples), x_star, strict=True)
    return np.concatenate([examples.features[rows] @ star for rows, star in parts])


def spans(examples: Examples) -> list[slice]:
    """The rows of each client."""
    return [slice(*ends) for ends in zip(examples.offsets[:-1], examples.offsets[1:], strict=True)]


@in_float64
def derivatives(model: LinearModel, z: Floats, y: Floats) -> tuple[Floats, Floats]:
    """d loss / dz `[examples, k]` and d^2 loss / dz^2 `[examples, k, k]`; k is 1 of a number."""
    k = z[0].size
    blocks = _padded(z, y, k * k)
    slope, bend = (
        np.concatenate(parts) for parts in zip(*(_bend(model, *b) for b in blocks), strict=True)
    )
    return slope[: len(z)].reshape(-1, k), bend[: len(z)].reshape(-1, k, k)


@in_float64
def losses(problem: Problem, labels: NDArray[np.float64], seen: Predictions) -> Floats:
    """The loss of each example at every alpha, `[examples, alphas]`."""
    assert isinstance(problem.model, LinearModel)
    size = len(GRID) * seen.own[:1].size
    parts = zip(_padded(seen.own, labels, size), _padded(seen.common, labels, size), strict=True)
    made = [_segment(problem.model, own, common, y) for (own, y), (common, _) in parts]
    return np.concatenate(made)[: len(labels)]


def _padded(z: Floats, y: Floats, numbers: int) -> list[tuple[Floats, Floats]]:
    """Blocks of as many examples each, the last filled up: programs for one shape."""
    step = max(1, min(len(y), AT_ONCE // numbers))
    filling = -len(y) % step
    z = np.pad(z, [(0, filling), *[(0, 0)] * (z.ndim - 1)])
    y = np.pad(y, (0, filling))
    return [(z[k : k + step], y[k : k + step]) for k in range(0, len(y), step)]


@partial(jax.jit, static_argnames="model")
def _bend(model: LinearModel, z: Array, y: Array) -> tuple[Array, Array]:
    return model.slope(z, y), jax.vmap(jax.jacfwd(model.slope))(z, y)


@partial(jax.jit, static_argnames="model")
def _segment(model: LinearModel, own: Array, common: Array, y: Array) -> Array:
    """The loss of each example at every alpha."""

    def at(alpha: Array) -> Array:
        return model.loss(alpha * common + (1 - alpha) * own, y)

    return jax.vmap(at, out_axes=1)(jnp.asarray(GRID))
