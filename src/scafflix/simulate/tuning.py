"""What clients do by themselves with a model before they take it home, as far as a method has it.

Their minibatches are those of the round that would come next.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.sharding import Mesh

from scafflix.core import streams
from scafflix.core.layout import Layout
from scafflix.core.sharing import for_each, gather, spread
from scafflix.core.streams import Stream
from scafflix.core.vector import Vector
from scafflix.gradients import answer_of, nothing_of, query_of
from scafflix.methods.method import Client, Method, State
from scafflix.models.network import Params
from scafflix.problems.losses import Losses
from scafflix.problems.problem import Problem
from scafflix.problems.rows import Numbers, Rows, Spans
from scafflix.simulate.loop import client_keys
from scafflix.simulate.round import Slopes


class Some(NamedTuple):
    """Clients that tune; every leaf has them in front."""

    client: Client  # with x_i*
    state: State
    number: Numbers  # who they are: the random stream of a client is its own
    spans: Spans | None = None  # their training rows, in a network


def tuned(problem: Problem, method: Method, x: Params, some: Some, seed: int, round: int) -> Params:
    """x_i of some clients after as many rounds, each by K' steps of its own from x.

    Of a linear model, `problem` has these clients only.
    """
    key = streams.key(seed, Stream.GRADIENT)
    # each client brings its stepsize
    method = jax.tree.map(problem.dtype.type, replace(method, gamma=None, limit=None))
    if problem.linear:
        return _all_at_once(problem.losses, method, Vector(x), some, key, np.int32(round)).tree
    if problem.torch is not None:
        from scafflix.simulate.torch_round import tuned_in_torch

        return tuned_in_torch(problem.torch, method, x, some, seed, round)
    mesh, count = problem.mesh, len(some.number)
    some = some._replace(spans=problem.train.spans(np.asarray(some.number)))
    # the first client again to fill up the devices
    place = np.concatenate([np.arange(count), np.zeros(-count % mesh.size, int)])
    shared = spread(mesh, jax.tree.map(lambda leaf: np.asarray(leaf)[place], some))
    slopes, key = Slopes.of(problem, method.gradient), jax.random.fold_in(key, round)
    made = gather(_one_by_one(slopes, mesh, problem.train.rows, method, x, shared, key))
    return jax.tree.map(lambda leaf: leaf[:count], made)


@jax.jit
def _all_at_once(
    losses: Losses, method: Method, x: Vector, some: Some, key: Array, round: Array
) -> Vector:
    """All clients of a linear model."""
    tune, count = method.tune, len(some.number)
    assert tune is not None

    def home(points: Vector) -> Vector:
        return jax.vmap(method.personal)(some.client, some.state, points)

    def step(number: Array, carry: tuple[Vector, Any]) -> tuple[Vector, Any]:
        points, memory = carry
        keys = client_keys(key, round, jnp.asarray(some.number), number)
        asked = jax.vmap(partial(query_of, method.gradient))(some.client, home(points), memory)
        one_run = jax.tree.map(lambda leaf: leaf[None], asked)
        answer = method.gradient.answer(losses, one_run, keys[None])
        g, memory = answer_of(jax.tree.map(lambda leaf: leaf[0], answer))
        return jax.vmap(tune)(some.client, some.state, points, g), memory

    first = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (count, *leaf.shape)), x)
    memory = jax.vmap(partial(nothing_of, method.gradient))(home(first))
    return jax.lax.fori_loop(0, _steps(method), step, (first, memory))[0]


@partial(jax.jit, static_argnames=("slopes", "mesh"))
def _one_by_one(
    slopes: Slopes, mesh: Mesh, rows: Rows, method: Method, x: Params, some: Some, key: Array
) -> Params:
    """Some clients of a network, shared out over the devices."""

    def one(common: tuple[Rows, Method, Params, Array], mine: Some) -> Params:
        rows, method, x, key = common
        tune, spans = method.tune, mine.spans
        assert tune is not None
        assert spans is not None
        key = jax.random.fold_in(key, mine.number)

        def home(point: Vector) -> Vector:
            made: Vector = method.personal(mine.client, mine.state, point)
            return made

        def step(number: Array, carry: tuple[Vector, Any]) -> tuple[Vector, Any]:
            point, memory = carry
            asked = query_of(method.gradient, mine.client, home(point), memory)
            own = jax.random.fold_in(key, number)
            answer, _ = slopes.at(method.gradient, rows, spans, own, asked)
            g, memory = answer_of(answer)
            return tune(mine.client, mine.state, point, g), memory

        # one that does not take part has x_i*, and nothing to tune
        steps = _steps(method) * (mine.client.alpha > 0)
        first = Vector(x), nothing_of(method.gradient, home(Vector(x)))
        return jax.lax.fori_loop(0, steps, step, first)[0].tree

    together = slopes.side_by_side(Layout.of(x).size)
    return for_each(mesh, one, (rows, method, x, key), some, together)


def _steps(method: Method) -> Array:
    """K', a leaf like the other hyperparameters, as the whole number that it is."""
    return jnp.asarray(method.tuning_steps).astype(int)
