"""One communication round of a cohort, compiled once.

The clients of the cohort are shared out over the devices; each device takes its clients one after
another through K local steps, K being known only when the round begins.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P

from scafflix.cohorts.devices import CLIENTS
from scafflix.cohorts.problem import (
    Numbers,
    Rows,
    Spans,
    batch_rows,
    first_rows,
    objective,
)
from scafflix.methods.method import Client, Method
from scafflix.models.network import Network, Params
from scafflix.vector import Vector

State = Any


class Cohort(NamedTuple):
    """The clients of a round; every leaf has them in front."""

    client: Client
    spans: Spans  # their training rows
    number: Numbers  # [tau], who they are: the random stream of a client is its own
    present: Numbers  # [tau], 0 for one that only fills up a device


class Settings(NamedTuple):
    """What a round is compiled for."""

    network: Network
    l2: float
    batch: int  # examples of a stochastic gradient
    full: bool  # all examples instead: `batch` is then the most that a client has
    mesh: Mesh


class Played(NamedTuple):
    """What a round leaves."""

    server: State
    states: State  # of the cohort
    loss: Any  # [tau], mean loss of each client's batches
    finite: Any  # whether every number of the model is


def mix(alpha: Array, x: Vector, x_star: Vector | None) -> Vector:
    """Line 7: x~_i = alpha_i x_i + (1 - alpha_i) x_i*; no local optimum means alpha_i = 1."""
    return x if x_star is None else alpha * x + (1 - alpha) * x_star


@partial(jax.jit, static_argnames="settings", donate_argnames="states")
def play(
    settings: Settings,
    rows: Rows,
    method: Method,
    cohort: Cohort,
    x_star: Params | None,
    states: State,
    server: State,
    steps: Array,
    key: Array,
) -> Played:
    """K local steps at every client of the cohort and one communication: lines 6 to 16."""
    each, common = P(CLIENTS), P()

    @partial(
        jax.shard_map,
        mesh=settings.mesh,
        in_specs=(common, common, each, each, each, common, common, common),
        out_specs=Played(common, each, each, common),
        check_vma=False,
    )
    def on_device(
        rows: Rows,
        method: Method,
        cohort: Cohort,
        x_star: Params | None,
        states: State,
        server: State,
        steps: Array,
        key: Array,
    ) -> Played:
        x = method.broadcast(server)

        def train(one: tuple[Cohort, Params | None, State]) -> tuple[Vector, Array]:
            mine, star, state = one
            star = None if star is None else Vector(star)
            return _local_steps(settings, rows, method, mine, star, state, x, steps, key)

        x_hat, loss = jax.lax.map(train, (cohort, x_star, states))
        messages, weights = jax.vmap(method.upload)(cohort.client, states, x_hat)
        weights = jnp.broadcast_to(weights, cohort.present.shape) * cohort.present
        total = jax.lax.psum(jnp.sum(weights), CLIENTS)
        mean = jax.tree.map(
            lambda m: jax.lax.psum(jnp.tensordot(weights, m, 1), CLIENTS) / total, messages
        )
        after = method.combine(server, mean)  # line 11
        x_bar = method.broadcast(after)
        count = steps.astype(jnp.float32)
        committed = jax.vmap(method.commit, in_axes=(0, 0, 0, None, None))(  # line 13
            cohort.client, states, x_hat, x_bar, count
        )
        finite = jnp.all(jnp.array([jnp.isfinite(jnp.sum(leaf)) for leaf in jax.tree.leaves(mean)]))
        return Played(after, committed, loss / count, finite)

    return on_device(rows, method, cohort, x_star, states, server, steps, key)


def _local_steps(
    settings: Settings,
    rows: Rows,
    method: Method,
    mine: Cohort,
    x_star: Vector | None,
    state: State,
    x: Vector,
    steps: Array,
    key: Array,
) -> tuple[Vector, Array]:
    """Lines 7 to 9, K times at one client; also the sum of the losses of its batches."""
    key = jax.random.fold_in(key, mine.number)
    loss = partial(objective, settings.network, settings.l2)

    def step(number: Array, carry: tuple[Vector, Array]) -> tuple[Vector, Array]:
        x, total = carry
        if settings.full:
            batch = first_rows(rows, *mine.spans, settings.batch)
        else:
            batch = batch_rows(rows, *mine.spans, settings.batch, jax.random.fold_in(key, number))
        x_tilde = mix(mine.client.alpha, x, x_star)
        (_, value), g = jax.value_and_grad(loss, has_aux=True)(x_tilde.tree, *batch)
        return method.local_step(mine.client, state, x, Vector(g)), total + value

    # one that only fills up a device has nothing to do
    many = steps * mine.present.astype(steps.dtype)
    return jax.lax.fori_loop(0, many, step, (x, jnp.float32(0)))
