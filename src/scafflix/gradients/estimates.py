"""Estimates g_i of grad f_i(x~_i), with their constants A_i and C_i of Assumption 3:

E ||g_i - grad f_i(x~_i*)||^2 <= 2 A_i D_{f_i}(x~_i, x~_i*) + C_i

An estimate may keep a memory at every client. Then the method keeps it, beside its own state
(methods/remembering.py), and asks with it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from scafflix.core.types import Floats
from scafflix.core.vector import Vector, choose
from scafflix.gradients.memory import (
    Number,
    Point,
    Points,
    Query,
    Reference,
    points_of,
    renewal_draw,
)
from scafflix.problems.constants import Constants
from scafflix.problems.losses import Losses
from scafflix.problems.problem import Problem


def nothing_of(gradient: Gradient, point: Point) -> tuple[Reference, ...]:
    """What is remembered of a point before the first step, where gradients have a memory."""
    return (Reference.nothing(point),) if isinstance(gradient, Reduced) else ()


def query_of(
    gradient: Gradient, client: Any, point: Point, memory: tuple[Reference, ...]
) -> Point | Query:
    """A point, with what is remembered of it."""
    if not isinstance(gradient, Reduced):
        return point
    return Query(point, memory, gradient.renewal(client.examples))


@runtime_checkable
class Gradient(Protocol):
    """A way to estimate gradients."""

    def answer(self, losses: Losses, asked: Points | Query, keys: Array) -> Points | Query:
        """g_i at all points `[runs, clients, *shape]`, on one sample; a key for each client."""

    def expected_smoothness(
        self, problem: Problem, constants: Constants, x_optimal: Callable[[], Floats]
    ) -> tuple[Floats, Floats]:
        """A_i and C_i of every client; `x_optimal()` finds x~_i*, `[clients, *shape]`."""


class Memoryless(ABC):
    """Of estimates that remember nothing."""

    def answer(self, losses: Losses, asked: Points, keys: Array) -> Points:
        points, form = points_of(asked)
        found = [Vector(self.estimate(losses, x.tree, keys)) for x in points]
        return jax.tree.unflatten(form, found)

    @abstractmethod
    def estimate(self, losses: Losses, x: Array, keys: Array) -> Array:
        """g_i at x `[runs, clients, *shape]`."""


@partial(jax.tree_util.register_dataclass, data_fields=[], meta_fields=[])
@dataclass(frozen=True)
class Exact(Memoryless):
    """g_i = grad f_i: A_i = L_i, C_i = 0."""

    def estimate(self, losses: Losses, x: Array, keys: Array) -> Array:
        return losses.gradients(x)

    def expected_smoothness(
        self, problem: Problem, constants: Constants, x_optimal: Callable[[], Floats]
    ) -> tuple[Floats, Floats]:
        return constants.L, np.zeros(problem.n)


@partial(jax.tree_util.register_dataclass, data_fields=["sigma"], meta_fields=[])
@dataclass(frozen=True)
class Noisy(Memoryless):
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
class Minibatch(Memoryless):
    """The mean gradient over B examples drawn uniformly with replacement.

    With L_i' the largest smoothness of one example's loss and v_i the variance of one example's
    gradient at x~_i*, both of client i,

        A_i = (1 - 1/B) L_i + (2/B) L_i'      C_i = 2 v_i / B

    which for B = 1 is the paper's sampling case and for large B tends to the exact gradient's.
    """

    size: int

    def estimate(self, losses: Losses, x: Array, keys: Array) -> Array:
        return losses.batch_gradients(x, self.rows(losses, keys))

    def rows(self, losses: Losses, keys: Array) -> Array:
        """The examples that each client draws, `[runs, clients, B]`."""

        def draw(key: Array, first: Array, count: Array) -> Array:
            return first + jax.random.randint(key, (self.size,), 0, count, dtype=jnp.int32)

        first, counts = losses.first.astype(jnp.int32), losses.counts.astype(jnp.int32)
        return jax.vmap(jax.vmap(draw), (0, None, None))(keys, first, counts)

    def expected_smoothness(
        self, problem: Problem, constants: Constants, x_optimal: Callable[[], Floats]
    ) -> tuple[Floats, Floats]:
        variance = np.asarray(jax.jit(Losses.gradient_variances)(problem.losses, x_optimal()[None]))
        share = 1.0 / self.size
        A = (1 - share) * constants.L + 2 * share * constants.L_example
        return A, 2 * share * np.maximum(variance[0], 0.0)


@partial(
    jax.tree_util.register_dataclass,
    data_fields=["q"],
    meta_fields=["size"],
    drop_fields=["counts"],
)
@dataclass(frozen=True)
class Reduced:
    """Minibatches with reduced variance: g_S(x) - g_S(y) + grad f_i(y), with the same B examples S
    at both points, and y that becomes x after a step with probability q_i.

    This is L-SVRG, as Malinovsky, Yi and Richtarik, "Variance Reduced ProxSkip: Algorithm, Theory
    and Application to Federated Learning" (2022), put it into ProxSkip; here any method can use it.
    q_i is B/n_i unless given, so that the gradient over all examples is computed once in as many
    steps as there are batches.

    With M_i = mean_j ||grad f_ij(y) - grad f_ij(x~_i*)||^2 over the examples and L_i' as above,

        E ||g_i - grad f_i(x~_i*)||^2 <= 2 (L_i + 2 L_i'/B) D_{f_i}(x~_i, x~_i*) + (2/B) M_i
        E M_i, a step later,          <= 2 q_i L_i' D_{f_i}(x~_i, x~_i*) + (1 - q_i) M_i

    so that Psi plus mean_i(gamma_min gamma_i 4/(B q_i) M_i) does what Psi does with

        A_i = L_i + 6 L_i'/B      C_i = 0

    except that its last part shrinks by the factor 1 - q_i/2 in a step.
    """

    size: int
    q: Any = None  # a number for all clients; None: by their examples
    counts: Any = None  # examples of each client, where theory is asked

    def renewal(self, examples: Number) -> Number:
        """q_i of clients with so many examples; 1 and more is always."""
        return self.size / examples if self.q is None else self.q

    def answer(self, losses: Losses, asked: Query, keys: Array) -> Query:
        rows = Minibatch(self.size).rows(losses, keys)

        def batch(x: Vector) -> Vector:
            return Vector(losses.batch_gradients(x.tree, rows))

        def full(x: Vector, where: Array) -> Vector:
            slope = partial(losses.gradients, x.tree)
            return Vector(jax.lax.cond(jnp.any(where), slope, lambda: x.tree))

        uniform = jax.vmap(jax.vmap(renewal_draw))(keys)
        return asked.answer(batch, full, uniform, choose)

    def expected_smoothness(
        self, problem: Problem, constants: Constants, x_optimal: Callable[[], Floats]
    ) -> tuple[Floats, Floats]:
        return constants.L + 6 / self.size * constants.L_example, np.zeros(problem.n)

    def slower(self, gamma: Floats, constants: Constants) -> tuple[float, float]:
        """What the memory makes of a guarantee: zeta is at most min_i q_i/2, and the memory that
        begins at x~_i^0 adds at most this part of Psi^0 to it."""
        counts = np.nan if self.counts is None else self.counts
        q = np.minimum(1.0, self.renewal(np.asarray(counts, float)) * np.ones_like(gamma))
        first = 4 / (self.size * q) * gamma**2 * constants.L * constants.L_example
        return float(q.min() / 2), float(first.max())
