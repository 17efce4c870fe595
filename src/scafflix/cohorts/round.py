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

from scafflix.cohorts.devices import CLIENTS, side_by_side
from scafflix.cohorts.layout import Layout
from scafflix.cohorts.problem import (
    Numbers,
    Rows,
    Spans,
    batch_rows,
    first_rows,
    objective,
)
from scafflix.methods.method import Client, Method
from scafflix.models.network import Network
from scafflix.personalize import mix
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
    state: Layout  # of what a client remembers


class Played(NamedTuple):
    """What a round leaves."""

    server: State
    states: Any  # of the cohort, a row each
    loss: Any  # [tau], mean loss of each client's batches
    finite: Any  # whether every number of the model is


@partial(jax.jit, static_argnames="settings")
def play(
    settings: Settings,
    rows: Rows,
    method: Method,
    cohort: Cohort,
    x_star: Array | None,
    states: Array,
    server: State,
    steps: Array,
    key: Array,
) -> Played:
    """K local steps at every client of the cohort and one communication: lines 6 to 16.

    `x_star` and `states` have a row for each client, as the store keeps them.
    """
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
        x_star: Array | None,
        states: Array,
        server: State,
        steps: Array,
        key: Array,
    ) -> Played:
        x = method.broadcast(server)
        point = Layout.of(x.tree)

        def train(one: tuple[Cohort, Array | None, Array]) -> tuple[Vector, Array]:
            mine, row, remembered = one
            star = None if row is None else Vector(point.tree(row))
            state = settings.state.tree(remembered)
            # one that only fills up a device has nothing to do; side by side all go as far
            many = steps * mine.present.astype(steps.dtype) if together is None else steps
            return _local_steps(settings, rows, method, mine, star, state, x, many, key)

        together = side_by_side(point.size)
        x_hat, loss = jax.lax.map(train, (cohort, x_star, states), batch_size=together)
        remembered = settings.state.tree(states)
        messages, weights = jax.vmap(method.upload)(cohort.client, remembered, x_hat)
        weights = jnp.broadcast_to(weights, cohort.present.shape) * cohort.present
        total = jax.lax.psum(jnp.sum(weights), CLIENTS)
        mean = jax.tree.map(
            lambda m: jax.lax.psum(jnp.tensordot(weights, m, 1), CLIENTS) / total, messages
        )
        after = method.combine(server, mean)  # line 11
        x_bar = method.broadcast(after)  # line 12
        count = steps.astype(jnp.float32)
        committed = jax.vmap(method.commit, in_axes=(0, 0, 0, None, None))(  # line 13
            cohort.client, remembered, x_hat, x_bar, count
        )
        flat = [leaf.reshape(len(leaf), -1) for leaf in jax.tree.leaves(committed)]
        kept = jnp.concatenate([*flat, states[:, settings.state.size :]], axis=1)
        finite = jnp.all(jnp.array([jnp.isfinite(jnp.sum(leaf)) for leaf in jax.tree.leaves(mean)]))
        return Played(after, kept, loss / count, finite)

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
        x_tilde = mix(mine.client.alpha, x, x_star)  # line 7
        (_, value), g = jax.value_and_grad(loss, has_aux=True)(x_tilde.tree, *batch)  # line 8
        x_hat = method.local_step(mine.client, state, x, Vector(g))  # line 9
        return x_hat, total + value

    return jax.lax.fori_loop(0, steps, step, (x, jnp.float32(0)))
