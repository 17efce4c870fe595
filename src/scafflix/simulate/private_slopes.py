"""The gradients of a network with privacy for every example: one by one, clipped, then noise."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from scafflix.core.vector import Vector
from scafflix.gradients import Private, points_of
from scafflix.gradients.private import drawn_at, normal_at
from scafflix.methods.method import Points
from scafflix.models.network import Network, mean_loss
from scafflix.problems.rows import Rows, Spans

WIDTH = 32  # examples whose gradients are there at once, where all count


class Sampled(NamedTuple):
    """The examples of one client."""

    network: Network
    l2: float
    batch: int | None  # expected number of examples of a gradient; None: all
    most: int  # examples that a client has
    rows: Rows
    spans: Spans


class Drawn(NamedTuple):
    """The random numbers of a step."""

    uniform: Array  # one for each example: those below the share of a batch take part
    noise: Sequence[Array]  # for each point, as many normal numbers as it has


def drawn_from(key: Array, slopes: Sampled, asked: Points) -> Drawn:
    """From the key of a step."""
    sizes = [sum(leaf.size for leaf in jax.tree.leaves(x.tree)) for x in points_of(asked)[0]]
    uniform = jax.vmap(partial(drawn_at, key))(jnp.arange(slopes.most))
    return Drawn(uniform, [normal_at(k, (size,), key) for k, size in enumerate(sizes)])


def private_slopes(
    slopes: Sampled, gradient: Private, asked: Points, drawn: Drawn
) -> tuple[Points, Array]:
    """Line 8 with privacy for every example, at several points on one sample, with noise of its own
    for each; and the mean loss at the first."""
    rows, spans = slopes.rows, slopes.spans
    real = jnp.arange(slopes.most) < spans.length
    if slopes.batch is not None:
        real &= drawn.uniform < slopes.batch / spans.length
    count = jnp.sum(real)
    chosen = spans.first + jnp.argsort(~real, stable=True)  # those that take part come first
    width = min(slopes.batch or WIDTH, slopes.most)
    of = spans.length if slopes.batch is None else slopes.batch

    def one(point: Any, inputs: Any, labels: Any) -> Array:
        single = jax.tree.map(lambda leaf: leaf[None], (inputs, labels))
        return mean_loss(slopes.network, point, *single)

    def total(point: Any) -> tuple[Array, Any]:
        def some(carry: tuple[Array, Array, Any]) -> tuple[Array, Array, Any]:
            done, loss, sums = carry
            here = done + jnp.arange(width)
            which = chosen[jnp.minimum(here, slopes.most - 1)]
            sample = jax.tree.map(lambda column: column[which], rows)
            losses, each = jax.vmap(jax.value_and_grad(one), (None, 0, 0))(point, *sample)
            squares = [jnp.sum(g**2, axis=tuple(range(1, g.ndim))) for g in jax.tree.leaves(each)]
            norms = jnp.sqrt(sum(squares))
            taken = (here < count).astype(norms.dtype)
            within = taken * jnp.where(norms <= gradient.clip, 1.0, gradient.clip / norms)
            sums = jax.tree.map(lambda s, g: s + jnp.tensordot(within, g, 1), sums, each)
            return done + width, loss + jnp.sum(taken * losses), sums

        zero = jnp.zeros((), jax.tree.leaves(point)[0].dtype)
        start = (jnp.zeros((), count.dtype), zero, jax.tree.map(jnp.zeros_like, point))
        _, loss, sums = jax.lax.while_loop(lambda carry: carry[0] < count, some, start)
        return loss / jnp.maximum(1, count), sums

    deviation = jnp.where(gradient.noise > 0, gradient.noise * gradient.clip, 0.0)

    def noisy(flat: Array, point: Any, sums: Any) -> Any:
        leaves, form = jax.tree.flatten(point)
        ends = np.cumsum([leaf.size for leaf in leaves])[:-1]
        parts = [
            a.reshape(leaf.shape) for a, leaf in zip(jnp.split(flat, ends), leaves, strict=True)
        ]
        return jax.tree.map(
            lambda s, x, noise: ((s + deviation * noise) / of + slopes.l2 * x).astype(x.dtype),
            sums,
            point,
            jax.tree.unflatten(form, parts),
        )

    points, form = points_of(asked)
    found, losses = [], []
    for point, noise in zip(points, drawn.noise, strict=True):
        loss, sums = total(point.tree)
        losses.append(loss)
        found.append(Vector(noisy(noise, point.tree, sums)))
    return jax.tree.unflatten(form, found), losses[0]
