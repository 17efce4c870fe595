"""Estimates g_i of grad f_i(x~_i), with their constants A_i and C_i of Assumption 3:

E ||g_i - grad f_i(x~_i*)||^2 <= 2 A_i D_{f_i}(x~_i, x~_i*) + C_i
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from scafflix.data.federation import Federation
from scafflix.errors import ScafflixError
from scafflix.problem import Constants, Floats, Losses, Problem


class Gradient(Protocol):
    """A way to estimate gradients."""

    def estimate(self, losses: Losses, x: Array, keys: Array) -> Array:
        """g_i at x `[runs, clients, *shape]`, from one key a run."""

    def expected_smoothness(
        self, problem: Problem, constants: Constants, x_optimal: Callable[[], Array]
    ) -> tuple[Floats, Floats]:
        """A_i and C_i of every client; `x_optimal()` finds x~_i*, `[clients, *shape]`."""


@partial(jax.tree_util.register_dataclass, data_fields=[], meta_fields=[])
@dataclass(frozen=True)
class Exact:
    """g_i = grad f_i: A_i = L_i, C_i = 0."""

    def estimate(self, losses: Losses, x: Array, keys: Array) -> Array:
        return losses.gradients(x)

    def expected_smoothness(
        self, problem: Problem, constants: Constants, x_optimal: Callable[[], Array]
    ) -> tuple[Floats, Floats]:
        return constants.L, np.zeros(problem.n)


@partial(jax.tree_util.register_dataclass, data_fields=["sigma"], meta_fields=[])
@dataclass(frozen=True)
class Noisy:
    """g_i = grad f_i plus Gaussian noise of variance sigma^2 in all: A_i = L_i, C_i = sigma^2."""

    sigma: float

    def estimate(self, losses: Losses, x: Array, keys: Array) -> Array:
        noise = jax.vmap(lambda key: jax.random.normal(key, x.shape[1:]))(keys)
        sigma = jnp.reshape(self.sigma, (-1, *(1,) * (x.ndim - 1)))  # one for each run
        return losses.gradients(x) + sigma / np.sqrt(np.prod(x.shape[2:])) * noise

    def expected_smoothness(
        self, problem: Problem, constants: Constants, x_optimal: Callable[[], Array]
    ) -> tuple[Floats, Floats]:
        return constants.L, np.full(problem.n, float(self.sigma) ** 2)


@partial(jax.tree_util.register_dataclass, data_fields=[], meta_fields=["size"])
@dataclass(frozen=True)
class Minibatch:
    """The mean gradient over B examples drawn uniformly with replacement.

    With L_i' the largest smoothness of one example's loss and v_i the variance of one example's
    gradient at x~_i*, both of client i,

        A_i = (1 - 1/B) L_i + (2/B) L_i'      C_i = 2 v_i / B

    which for B = 1 is the paper's sampling case and for large B tends to the exact gradient's.
    """

    size: int

    def estimate(self, losses: Losses, x: Array, keys: Array) -> Array:
        def draw(key: Array) -> Array:
            shape = (len(losses.counts), self.size)
            rows = jax.random.randint(key, shape, 0, losses.counts[:, None])
            return losses.first[:, None] + rows

        return losses.batch_gradients(x, jax.vmap(draw)(keys))

    def expected_smoothness(
        self, problem: Problem, constants: Constants, x_optimal: Callable[[], Array]
    ) -> tuple[Floats, Floats]:
        variance = np.asarray(jax.jit(Losses.gradient_variances)(problem.losses, x_optimal()[None]))
        share = 1.0 / self.size
        A = (1 - share) * constants.L + 2 * share * constants.L_example
        return A, 2 * share * np.maximum(variance[0], 0.0)


def gradient(batch: str | int = "full", noise: float = 0.0) -> Gradient:
    """The estimate that `--batch` and `--noise` name.

    >>> gradient("full"), gradient(20), gradient(noise=0.5)
    (Exact(), Minibatch(size=20), Noisy(sigma=0.5))
    """
    if not (np.isfinite(noise) and noise >= 0):
        raise ScafflixError(f"noise is {noise}; it must be a finite number, 0 or more.")
    if str(batch) == "full":
        return Noisy(float(noise)) if noise else Exact()
    try:
        size = int(batch)
    except ValueError:
        size = 0
    if size < 1:
        raise ScafflixError(f"batch is {batch!r}; it must be a whole number above 0, or full.")
    if noise:
        raise ScafflixError("noise goes with full gradients; leave out batch or noise.")
    return Minibatch(size)


def check_batch(estimate: Gradient, federation: Federation) -> None:
    """Refuse a batch that is larger than some client's data."""
    counts = federation.train.counts
    smallest = int(np.argmin(counts))
    if isinstance(estimate, Minibatch) and estimate.size > counts[smallest]:
        raise ScafflixError(
            f"batch is {estimate.size}, but client {federation.clients[smallest]} has "
            f"only {counts[smallest]} examples; give at most {counts[smallest]}, or full."
        )
