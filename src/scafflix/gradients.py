"""Estimates g_i of grad f_i(x~_i), with their constants A_i and C_i of Assumption 3:

E ||g_i - grad f_i(x~_i*)||^2 <= 2 A_i D_{f_i}(x~_i, x~_i*) + C_i
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import NDArray

from scafflix.core.arguments import real_number, shown, whole_number
from scafflix.core.errors import ScafflixError
from scafflix.core.types import Floats
from scafflix.data.federation import Federation
from scafflix.problems.constants import Constants
from scafflix.problems.losses import Losses
from scafflix.problems.problem import Problem

LARGEST_NOISE = 1e150  # its square is a number still


@runtime_checkable
class Gradient(Protocol):
    """A way to estimate gradients."""

    def estimate(self, losses: Losses, x: Array, keys: Array) -> Array:
        """g_i at x `[runs, clients, *shape]`, from a key for each, `[runs, clients]`."""

    def expected_smoothness(
        self, problem: Problem, constants: Constants, x_optimal: Callable[[], Floats]
    ) -> tuple[Floats, Floats]:
        """A_i and C_i of every client; `x_optimal()` finds x~_i*, `[clients, *shape]`."""


@partial(jax.tree_util.register_dataclass, data_fields=[], meta_fields=[])
@dataclass(frozen=True)
class Exact:
    """g_i = grad f_i: A_i = L_i, C_i = 0."""

    def estimate(self, losses: Losses, x: Array, keys: Array) -> Array:
        return losses.gradients(x)

    def expected_smoothness(
        self, problem: Problem, constants: Constants, x_optimal: Callable[[], Floats]
    ) -> tuple[Floats, Floats]:
        return constants.L, np.zeros(problem.n)


@partial(jax.tree_util.register_dataclass, data_fields=["sigma"], meta_fields=[])
@dataclass(frozen=True)
class Noisy:
    """g_i = grad f_i plus Gaussian noise of variance sigma^2 in all: A_i = L_i, C_i = sigma^2."""

    sigma: float

    def estimate(self, losses: Losses, x: Array, keys: Array) -> Array:
        noise = jax.vmap(jax.vmap(lambda key: jax.random.normal(key, x.shape[2:])))(keys)
        sigma = jnp.reshape(self.sigma, (-1, *(1,) * (x.ndim - 1)))  # one for each run
        return losses.gradients(x) + sigma / np.sqrt(np.prod(x.shape[2:])) * noise

    def expected_smoothness(
        self, problem: Problem, constants: Constants, x_optimal: Callable[[], Floats]
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
        def draw(key: Array, first: Array, count: Array) -> Array:
            return first + jax.random.randint(key, (self.size,), 0, count, dtype=jnp.int32)

        first, counts = losses.first.astype(jnp.int32), losses.counts.astype(jnp.int32)
        rows = jax.vmap(jax.vmap(draw), (0, None, None))(keys, first, counts)
        return losses.batch_gradients(x, rows)

    def expected_smoothness(
        self, problem: Problem, constants: Constants, x_optimal: Callable[[], Floats]
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
    noise = real_number("noise", noise, below=LARGEST_NOISE)
    if isinstance(batch, str) and not (batch.isdecimal() and len(batch) < 19):
        if batch != "full":
            raise ScafflixError(f"batch is {batch!r}; it must be a whole number above 0, or full.")
        return Noisy(noise) if noise else Exact()
    if noise:
        raise ScafflixError("noise is added to full gradients only; leave out batch or noise.")
    size = int(batch) if isinstance(batch, str) else batch
    return Minibatch(whole_number("batch", size, least=1))


def checked_gradient(estimate: object) -> Gradient:
    """The estimate, if it is one; its numbers are checked here, since JAX makes such objects too,
    with whatever it traces in their places."""
    if isinstance(estimate, type) or not isinstance(estimate, Gradient):
        raise ScafflixError(f"gradient is {shown(estimate)}; give sx.gradients.gradient(...).")
    if isinstance(estimate, Noisy):
        return Noisy(real_number("sigma", estimate.sigma, below=LARGEST_NOISE))
    if isinstance(estimate, Minibatch):
        return Minibatch(whole_number("batch", estimate.size, least=1))
    return estimate


def check_batch(
    estimate: Gradient, federation: Federation, clients: NDArray[np.int64] | None = None
) -> None:
    """Refuse a batch that is larger than the data of some client, of those that take part."""
    counts = federation.train.counts
    chosen = np.arange(len(counts)) if clients is None else clients
    smallest = int(chosen[np.argmin(counts[chosen])])
    if isinstance(estimate, Minibatch) and estimate.size > counts[smallest]:
        raise ScafflixError(
            f"batch is {estimate.size}, but client {federation.clients[smallest]} has "
            f"only {counts[smallest]} examples; give at most {counts[smallest]}, or full."
        )
