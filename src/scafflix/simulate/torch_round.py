"""Rounds of a cohort with a PyTorch module: Algorithm 1 as it is written, on tensors.

The workers of the problem share the clients. What a method computes once a round where it has a
compressor, it computes on NumPy arrays, as in a federation.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import reduce
from itertools import cycle
from operator import add
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import numpy as np
import torch
from numpy.typing import NDArray

from scafflix import algorithm
from scafflix.core import streams
from scafflix.core.errors import ScafflixError
from scafflix.core.layout import Layout
from scafflix.core.streams import Stream
from scafflix.core.tensors import (
    InPlace,
    as_points,
    as_tensor,
    evaluated,
    in_numpy,
    in_tensors,
    in_vectors,
    is_point,
    write,
)
from scafflix.gradients import (
    Gradient,
    Minibatch,
    Private,
    Query,
    Reduced,
    Reference,
    answer_of,
    either,
    nothing_of,
    query_of,
    renewal_draw,
)
from scafflix.gradients.private import IN_JAX_ALONE
from scafflix.methods.method import Client, Local, Message, Method, Number, Points, State, Turn
from scafflix.models.network import Params
from scafflix.problems.modules import Module
from scafflix.problems.problem import Problem
from scafflix.problems.pytorch import TorchFunctions
from scafflix.simulate.round import Asked, Cohort, Played

if TYPE_CHECKING:
    from scafflix.simulate.tuning import Some


class Trained(NamedTuple):
    """A client after its local steps."""

    client: Client  # with its turn
    state: State
    local: Local
    message: Message  # as it arrives
    weight: Number
    loss: float  # the mean of its batches


class InTorch:
    """Rounds of a PyTorch module."""

    together = 1

    def __init__(
        self, problem: Problem, method: Method, state: Any, cohort: int, seed: int
    ) -> None:
        assert problem.torch is not None
        if jax.process_count() > 1:
            raise ScafflixError(
                "Rounds of a PyTorch module run in one process; leave out the others, or take a "
                "network in JAX."
            )
        self.functions, self.device = problem.torch, problem.torch.device
        self.cohort, self.seed = cohort, seed
        self.key, self.server_key = (
            streams.key(seed, purpose) for purpose in (Stream.COMPRESSION, Stream.SERVER)
        )
        self.state, self.point = Layout.of(state), Layout.of(problem.template)
        self.size = batch_of(method.gradient)
        # for what clients remember after a round: while one is written, the other may still be on
        # its way to the store; new memory would cost more than what is written
        room = (cohort, self.state.width)
        self.rooms = cycle([np.zeros(room, np.float32), np.zeros(room, np.float32)])
        # what draws random numbers does it on NumPy arrays
        self.by_numbers = method.compressor is not None or method.draws
        self.method = method

    def begin(self, x0: Params) -> State:
        return evaluated(self.method.init_server(in_tensors(x0, self.device)))

    def placed(self, server: State) -> State:
        return jax.tree.map(lambda leaf: as_tensor(leaf, self.device), server)

    def kept(self, tree: Any) -> Any:
        return in_numpy(tree)

    def play(self, asked: Asked, server: State) -> Played:
        method, each = self.method, self.functions.each
        cohort, x_star, states, steps, share, number = asked
        sent = evaluated(method.broadcast(server))
        key = jax.random.fold_in(self.key, number)

        def train(module: Module, k: int) -> Trained:
            client = self._client(cohort, k, x_star, key)
            state = as_points(self.state.tree(states[k]), self.device)
            own, who = int(cohort.steps[k]), int(cohort.number[k])
            total: list[torch.Tensor] = []

            def gradient(points: Points | Query, step: int) -> Any:  # line 8
                place = Place(self.seed, number, who, step)
                g, value = slopes_at(self.functions, self.size, module, points, place)
                total.append(value)
                return g

            alone = client._replace(turn=None)
            stops = bool(cohort.stops[k])
            local = algorithm.local_steps(
                _evaluating(method), alone, state, sent, own, gradient, stops
            )
            message, weight = self._upload(client, state, sent, local)
            loss = float(torch.stack(total).mean())
            return Trained(client, state, local, message, weight, loss)

        those = each(train, range(self.cohort))
        mean = _mean([(one.message, one.weight) for one in those])
        if method.blur is not None:
            server_key = jax.random.fold_in(self.server_key, number)
            unit = algorithm.unit_of(np.array([one.weight for one in those]))
            noisy = algorithm.blurred(method, server_key, in_vectors(mean), unit)
            mean = as_points(noisy, self.device)
        following, after = evaluated(algorithm.communicate(method, server, steps, mean, share))
        kept = next(self.rooms)

        def commit(_: Module, k: int) -> None:  # line 13
            one = those[k]
            mine = self._arrays((one.client, one.state, sent, one.local, after))
            client, state, down, local, last = mine
            committed = method.commit(client, state, down, local, last, int(cohort.steps[k]))
            room = jax.tree.leaves(self.state.tree(kept[k]))
            if not self.by_numbers:
                write(committed, [torch.from_numpy(array) for array in room])
            else:
                for array, leaf in zip(room, jax.tree.leaves(committed), strict=True):
                    array[...] = leaf

        if self.state.size:
            each(commit, range(self.cohort))
        finite = all(bool(torch.isfinite(leaf.sum())) for leaf in jax.tree.leaves(mean))
        return Played(following, kept, np.array([one.loss for one in those]), finite)

    def _client(
        self, cohort: Cohort, k: int, x_star: NDArray[Any] | None, key: jax.Array
    ) -> Client:
        """One of the cohort, in its round."""
        numbers = jax.tree.map(lambda column: float(column[k]), cohort.client)
        star = None if x_star is None else in_tensors(self.point.tree(x_star[k]), self.device)
        turn = Turn(key, int(cohort.place[k]), self.cohort)
        client: Client = numbers._replace(x_star=star, turn=turn)
        return client

    def _upload(
        self, client: Client, state: State, sent: Any, local: Local
    ) -> tuple[Message, Number]:
        """Line 11, at the client."""
        if not self.by_numbers:
            return algorithm.upload(self.method, client, state, sent, local)
        asked = self._arrays((client, state, sent, local))
        message, weight = algorithm.upload(self.method, *asked)
        return as_points(message, self.device), weight

    def _arrays(self, arguments: Any) -> Any:
        """As the method takes them once a round."""
        return in_vectors(arguments) if self.by_numbers else arguments


def tuned_in_torch(
    functions: TorchFunctions, method: Method, x: Params, some: Some, seed: int, round: int
) -> Params:
    """x_i of some clients, stacked, each by K' steps of its own from x."""
    tune, size = method.tune, batch_of(method.gradient)
    assert tune is not None
    first = in_tensors(x, functions.device)

    def at_client(module: Module, k: int) -> Params:
        one = jax.tree.map(lambda leaf: np.asarray(leaf)[k], (some.client, some.state))
        client, state = as_points(one, functions.device)
        point, who = first, int(some.number[k])
        memory: tuple[Reference, ...] | None = None
        # one that does not take part has x_i*, and nothing to tune
        for step in range(int(method.tuning_steps) if client.alpha > 0 else 0):
            home = method.personal(client, state, point)
            memory = nothing_of(method.gradient, home) if memory is None else memory
            asked = query_of(method.gradient, client, home, memory)
            found, _ = slopes_at(functions, size, module, asked, Place(seed, round, who, step))
            g, memory = evaluated(answer_of(found))
            point = evaluated(tune(client, state, point, g))
        return in_numpy(point.tree)

    made = functions.each(at_client, range(len(some.number)))
    return jax.tree.map(lambda *leaves: np.stack(leaves), *made)


class Place(NamedTuple):
    """Which gradient is asked for."""

    seed: int
    round: int
    client: int
    step: int


def slopes_at(
    functions: TorchFunctions, size: int | None, module: Module, asked: Points | Query, place: Place
) -> tuple[Any, torch.Tensor]:
    """Gradients at one or several points on one batch, and the loss of the batch at the first."""
    seed = (place.seed, int(Stream.GRADIENT), *place[1:])

    def at(points: Points, size: int | None) -> tuple[Points, torch.Tensor]:
        return functions.slopes(module, place.client, points, size, seed)

    if not isinstance(asked, Query):
        return at(asked, size)
    losses = []

    def batch(point: Any) -> Any:
        g, loss = at(point, size)
        losses.append(loss)
        return g

    def full(point: Any, needed: bool) -> Any:
        return at(point, None)[0] if needed else point

    key = streams.at_step(streams.key(place.seed, Stream.GRADIENT), *place[1:])
    return asked.answer(batch, full, float(renewal_draw(key)), either), losses[0]


def batch_of(gradient: Gradient) -> int | None:
    """How many examples a gradient takes; None for all."""
    if isinstance(gradient, Private):
        raise ScafflixError(IN_JAX_ALONE)
    return gradient.size if isinstance(gradient, Minibatch | Reduced) else None


def _mean(uploads: list[tuple[Message, Number]]) -> Message:
    """Line 11, at the server, in one pass for each client."""
    total = sum(weight for _, weight in uploads)

    def mean(*points: Any) -> Any:
        parts = zip(uploads, points, strict=True)
        return reduce(add, ((weight / total) * point for (_, weight), point in parts))

    return evaluated(jax.tree.map(mean, *(one for one, _ in uploads), is_leaf=is_point))


def _evaluating(method: Method) -> Method:
    """The steps of one client, each evaluated once: the next asks for it more than once."""
    step = InPlace()

    def evaluating(function: Callable[..., Any]) -> Callable[..., Any]:
        return lambda *arguments: step(function(*arguments))

    stop = None if method.stop is None else evaluating(method.stop)
    return replace(method, local_step=evaluating(method.local_step), stop=stop)
