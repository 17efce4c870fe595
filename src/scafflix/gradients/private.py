"""Gradients with differential privacy for every example: clipped one by one, with noise."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from scafflix.core.types import Floats
from scafflix.core.vector import Vector
from scafflix.gradients.memory import Points, points_of
from scafflix.models import LinearModel
from scafflix.problems.constants import Constants
from scafflix.problems.losses import Losses
from scafflix.problems.problem import Problem

IN_JAX_ALONE = (
    "Privacy for every example is for models in JAX; with a PyTorch module, or a learner of your "
    "own, give privacy client."
)


@partial(jax.tree_util.register_dataclass, data_fields=["clip", "noise"], meta_fields=["size"])
@dataclass(frozen=True)
class Private:
    """g_i = (1/b_i) (sum_j [gradient of example j, of norm at most c] + z c normal numbers) + l2 x.

    Without a batch, b_i = n_i and all examples count. With a batch of B, b_i = B and every example
    counts with probability q_i = B/n_i, independently of the others (Poisson sampling).

    While no example's gradient is longer than c, clipping does nothing. Then with d numbers, L_i'
    the largest smoothness of one example's loss and s_i the mean squared norm of the gradients of
    the examples at x~_i*, both of client i,

        A_i = L_i + 2 (1 - q_i)/B L_i'      C_i = 2 (1 - q_i)/B s_i + d (z c/b_i)^2

    and without a batch A_i = L_i, C_i = d (z c/n_i)^2. Where clipping may do something, C_i is
    unknown (NaN).
    """

    clip: Any
    noise: Any  # multiplier
    size: int | None = None

    def answer(self, losses: Losses, asked: Points, keys: Array) -> Points:
        """At all points on one sample, with noise of its own for each."""
        chosen = None if self.size is None else self._chosen(losses, keys)

        def noise(number: int, x: Array) -> Array:
            drawn: Array = jax.vmap(jax.vmap(partial(normal_at, number, x.shape[2:])))(keys)
            return drawn

        points, _ = points_of(asked)
        return self.drawn(losses, asked, chosen, [noise(k, x.tree) for k, x in enumerate(points)])

    def drawn(
        self, losses: Losses, asked: Points, chosen: Array | None, noise: Sequence[Array]
    ) -> Points:
        """The same with these rows, `[rows, runs]`, and these normal numbers for each point."""
        points, form = points_of(asked)
        found = [
            Vector(self._estimate(losses, x.tree, chosen, mine))
            for x, mine in zip(points, noise, strict=True)
        ]
        return jax.tree.unflatten(form, found)

    def _estimate(self, losses: Losses, x: Array, chosen: Array | None, noise: Array) -> Array:
        clip, z = (jnp.reshape(one, (-1,)) for one in (self.clip, self.noise))  # one for each run
        of = losses.counts.astype(x.dtype)
        weight = jnp.ones_like(of) if self.size is None else of / self.size  # n_i/b_i
        each = (1, -1, *(1,) * (x.ndim - 2))
        mean = losses.clipped_gradients(x, clip, chosen) - losses.l2 * x
        deviation = jnp.where(z > 0, z * clip, 0.0).reshape(-1, *(1,) * (x.ndim - 1))
        return weight.reshape(each) * (mean + deviation / of.reshape(each) * noise) + losses.l2 * x

    def _chosen(self, losses: Losses, keys: Array) -> Array:
        """Which rows take part, `[rows, runs]`."""
        assert self.size is not None
        owner = losses.owner
        place = jnp.arange(len(owner)) - losses.first[owner]
        share = self.size / losses.counts[owner]
        drawn = jax.vmap(jax.vmap(drawn_at))(
            keys[:, owner], jnp.broadcast_to(place, (len(keys), len(owner)))
        )
        return (drawn < share).T

    def expected_smoothness(
        self, problem: Problem, constants: Constants, x_optimal: Callable[[], Floats]
    ) -> tuple[Floats, Floats]:
        counts = problem.federation.train.counts
        of = counts if self.size is None else np.full(problem.n, self.size)
        noise = problem.size * (float(self.noise) * self.clip / of) ** 2 if self.noise else 0.0
        C = np.zeros(problem.n) + noise
        C[largest_gradients(problem) > self.clip] = np.nan
        if self.size is None:
            return constants.L, C
        rest = (1 - self.size / counts) / self.size
        sizes = np.asarray(jax.jit(Losses.mean_sizes_sq)(problem.losses, x_optimal()[None]))[0]
        return constants.L + 2 * rest * constants.L_example, C + 2 * rest * sizes


def largest_gradients(problem: Problem) -> Floats:
    """What no gradient of an example exceeds at any model, for each client, without the l2 term."""
    assert isinstance(problem.model, LinearModel)
    losses, most = problem.losses, np.zeros(problem.n)
    np.maximum.at(most, np.asarray(losses.owner), np.asarray(losses.norm_sq))
    return problem.model.steepest * np.sqrt(most)


def normal_at(number: int, shape: tuple[int, ...], key: Array) -> Array:
    """The noise of one of the points that are asked about, from the key of a step."""
    return jax.random.normal(jax.random.fold_in(jax.random.fold_in(key, 2), number), shape)


def drawn_at(key: Array, place: Array) -> Array:
    """The number that says whether an example takes part, from the key of a step."""
    return jax.random.uniform(jax.random.fold_in(jax.random.fold_in(key, 3), place))
