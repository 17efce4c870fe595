"""One communication round of a cohort, compiled once.

The clients of the cohort are shared out over the devices; each device takes its clients one after
another through K local steps, K being known only when the round begins.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P
from numpy.typing import NDArray

from scafflix import algorithm
from scafflix.core import streams
from scafflix.core.layout import Layout
from scafflix.core.sharing import CLIENTS, replicate, side_by_side, spread
from scafflix.core.streams import Stream
from scafflix.core.vector import Vector, choose
from scafflix.gradients import (
    Gradient,
    Minibatch,
    Private,
    Query,
    Reduced,
    points_of,
    renewal_draw,
)
from scafflix.methods.method import Client, Local, Method, Points, Turn
from scafflix.models.network import Network, Params
from scafflix.problems.problem import Problem
from scafflix.problems.rows import (
    Numbers,
    Rows,
    Spans,
    batch_rows,
    first_rows,
    objective,
)
from scafflix.simulate.private_slopes import Sampled, drawn_from, private_slopes

State = Any


class Cohort(NamedTuple):
    """The clients of a round; every leaf has them in front."""

    client: Client
    spans: Spans  # their training rows
    number: Numbers  # [tau], who they are: the random stream of a client is its own
    place: Numbers  # [tau], of each in the round
    steps: Numbers  # [tau], K_i: the local steps of each
    stops: Numbers  # [tau], whether it stops by itself with the last of them
    present: Numbers  # [tau], 0 for one that only fills up a device


class Keys(NamedTuple):
    """What the random streams of a run begin with, and in a round those of the round."""

    gradient: Array
    compression: Array
    server: Array


class Slopes(NamedTuple):
    """How the gradients of a client are evaluated."""

    network: Network
    l2: float
    batch: int | None  # examples of a stochastic gradient; None: all
    most: int  # examples that a client has
    remembers: bool  # whether clients ask with what they remember

    @classmethod
    def of(cls, problem: Problem, gradient: Gradient) -> Slopes:
        batch = gradient.size if isinstance(gradient, Minibatch | Reduced | Private) else None
        most, remembers = int(problem.train.counts.max()), isinstance(gradient, Reduced)
        return cls(problem.in_jax, problem.l2, batch, most, remembers)

    def at(
        self, gradient: Gradient, rows: Rows, spans: Spans, key: Array, asked: Points | Query
    ) -> tuple[Points | Query, Array]:
        """Line 8: gradients at one or several points on one sample, and its loss at the first."""
        if isinstance(gradient, Private):
            sampled = Sampled(self.network, self.l2, self.batch, self.most, rows, spans)
            return private_slopes(sampled, gradient, asked, drawn_from(key, sampled, asked))
        if self.batch is None:
            sample = first_rows(rows, *spans, self.most)
        else:
            sample = batch_rows(rows, *spans, self.batch, key)
        value = partial(objective, self.network, self.l2)
        slope, losses = jax.value_and_grad(value, has_aux=True), []

        def batch(point: Vector) -> Vector:
            (_, loss), g = slope(point.tree, *sample)
            losses.append(loss)
            return Vector(g)

        def full(point: Vector, where: Array) -> Vector:
            def whole() -> Any:
                return jax.grad(value, has_aux=True)(
                    point.tree, *first_rows(rows, *spans, self.most)
                )[0]

            return Vector(jax.lax.cond(where, whole, lambda: point.tree))

        assert isinstance(asked, Query) == self.remembers
        if isinstance(asked, Query):
            answer = asked.answer(batch, full, renewal_draw(key), choose)
            return answer, losses[0]
        points, form = points_of(asked)
        found = [batch(point) for point in points]
        return jax.tree.unflatten(form, found), losses[0]

    def side_by_side(self, size: int) -> int | None:
        """How many clients take their steps together; not where each needs its gradient over all
        examples only now and then, which all would then compute in every step."""
        return None if self.remembers else side_by_side(size)


class Settings(NamedTuple):
    """What a round is compiled for."""

    slopes: Slopes
    mesh: Mesh
    state: Layout  # of what a client remembers
    cohort: int  # clients of a round


class Asked(NamedTuple):
    """A round that is to be played."""

    cohort: Cohort
    x_star: NDArray[Any] | None  # a row for each client, as the store keeps it
    states: NDArray[Any]  # the same
    steps: int  # K
    share: float  # of the cohort among the clients that take part
    number: int  # of the round


class Played(NamedTuple):
    """What a round leaves."""

    server: State
    states: Any  # of the cohort, a row each
    loss: Any  # [tau], mean loss of each client's batches
    finite: Any  # whether every number of the model is


class Rounds(Protocol):
    """How the rounds of a cohort are computed; all around them is the same."""

    together: int  # clients come in multiples of it, the last ones only to fill up

    def begin(self, x0: Params) -> State:
        """The server's first state, where rounds compute."""

    def placed(self, server: State) -> State:
        """A server's state of a checkpoint, in the form of the first, where rounds compute."""

    def kept(self, tree: Any) -> Any:
        """A tree as rounds leave it, in NumPy arrays."""

    def play(self, asked: Asked, server: State) -> Played:
        """K local steps at every client of the cohort and one communication: lines 6 to 16."""


class Compiled:
    """Rounds in JAX."""

    def __init__(
        self, problem: Problem, method: Method, state: Any, cohort: int, seed: int
    ) -> None:
        self.problem, self.together = problem, problem.mesh.size
        self.method = replicate(problem.mesh, method)
        slopes = Slopes.of(problem, method.gradient)
        self.settings = Settings(slopes, problem.mesh, Layout.of(state), cohort)
        purposes = (Stream.GRADIENT, Stream.COMPRESSION, Stream.SERVER)
        self.keys = Keys(*(streams.key(seed, purpose) for purpose in purposes))

    def begin(self, x0: Params) -> State:
        return self.placed(self.method.init_server(Vector(x0)))

    def placed(self, server: State) -> State:
        return replicate(self.problem.mesh, server)

    def kept(self, tree: Any) -> Any:
        return jax.tree.map(np.asarray, tree)

    def play(self, asked: Asked, server: State) -> Played:
        mesh, kind = self.problem.mesh, self.problem.dtype.type
        return play(
            self.settings,
            self.problem.train.rows,
            self.method,
            *spread(mesh, (asked.cohort, asked.x_star, asked.states)),
            server,
            kind(asked.steps),
            kind(asked.share),
            np.uint32(asked.number),
            self.keys,
        )


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
    share: Array,
    number: Array,
    keys: Keys,
) -> Played:
    """The round as a program. It is a round of `algorithm.run`, and tested to be."""
    each, common = P(CLIENTS), P()
    keys = Keys(*(jax.random.fold_in(key, number) for key in keys))

    @partial(
        jax.shard_map,
        mesh=settings.mesh,
        in_specs=(common, common, each, each, each, common, common, common, common),
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
        share: Array,
        keys: Keys,
    ) -> Played:
        sent = method.broadcast(server)
        point = Layout.of(server.x.tree)

        def train(one: tuple[Cohort, Array | None, Array]) -> tuple[Local, Array]:
            mine, row, remembered = one
            mine = mine._replace(client=with_star(mine.client, row))
            state = settings.state.tree(remembered)
            # with a number of its own for each, clients side by side would pay in every step for
            # a choice between old and new points
            own = jnp.asarray(mine.steps)
            many = steps.astype(own.dtype) if method.own_steps is None else own
            if together is None:  # one that only fills up a device has nothing to do
                many = many * mine.present.astype(own.dtype)
            return _local_steps(settings, rows, method, mine, state, sent, many, keys.gradient)

        def with_star(client: Client, row: Array | None) -> Client:
            return client if row is None else client._replace(x_star=Vector(point.tree(row)))

        together = settings.slopes.side_by_side(point.size)
        local, loss = jax.lax.map(train, (cohort, x_star, states), batch_size=together)
        remembered, clients = settings.state.tree(states), with_star(cohort.client, x_star)

        def in_round(client: Client, place: Numbers) -> Client:
            return client._replace(turn=Turn(keys.compression, place, settings.cohort))

        def upload(client: Client, place: Numbers, state: State, local: Local) -> Any:
            return algorithm.upload(method, in_round(client, place), state, sent, local)

        messages, weights = jax.vmap(upload)(clients, cohort.place, remembered, local)
        weights = jnp.broadcast_to(weights, cohort.present.shape) * cohort.present
        total = jax.lax.psum(jnp.sum(weights), CLIENTS)
        mean = jax.tree.map(
            lambda m: jax.lax.psum(jnp.tensordot(weights, m, 1), CLIENTS) / total, messages
        )
        squares = jax.lax.psum(jnp.sum(weights**2), CLIENTS)
        unit = jnp.sqrt(squares / settings.cohort) / total
        mean = algorithm.blurred(method, keys.server, mean, unit)
        following, after = algorithm.communicate(method, server, steps, mean, share)
        count = cohort.steps.astype(cohort.present.dtype)

        def commit(
            client: Client, place: Numbers, state: State, local: Local, steps: Numbers
        ) -> State:
            return method.commit(in_round(client, place), state, sent, local, after, steps)

        committed = jax.vmap(commit)(clients, cohort.place, remembered, local, count)  # line 13
        flat = [leaf.reshape(len(leaf), -1) for leaf in jax.tree.leaves(committed)]
        kept = jnp.concatenate([*flat, states[:, settings.state.size :]], axis=1)
        finite = jnp.all(jnp.array([jnp.isfinite(jnp.sum(leaf)) for leaf in jax.tree.leaves(mean)]))
        return Played(following, kept, loss / count, finite)

    return on_device(rows, method, cohort, x_star, states, server, steps, share, keys)


def _local_steps(
    settings: Settings,
    rows: Rows,
    method: Method,
    mine: Cohort,
    state: State,
    sent: Any,
    steps: Array,
    key: Array,
) -> tuple[Local, Array]:
    """Lines 7 to 9, K times at one client; also the sum of the losses of its batches."""
    key = jax.random.fold_in(key, mine.number)
    client = mine.client

    def step(number: Array, carry: tuple[Local, Array]) -> tuple[Local, Array]:
        local, total = carry
        points = method.asks(client, state, sent, local)  # line 7
        own = jax.random.fold_in(key, number)
        g, value = settings.slopes.at(method.gradient, rows, mine.spans, own, points)
        following = method.local_step(client, state, sent, local, g)  # line 9
        if method.stop is not None:
            stopped = method.stop(client, state, sent, local, g)
            last = mine.stops & (number + 1 == mine.steps)
            following = jax.tree.map(partial(jnp.where, last), stopped, following)
        return following, total + value

    nothing = jnp.zeros((), client.alpha.dtype)
    return jax.lax.fori_loop(0, steps, step, (method.begin(client, state, sent), nothing))
