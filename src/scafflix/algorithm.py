"""Algorithm 1 of the paper, lines 1 to 18, for any method and any arrays.

This is the one place where the order of things is written down, to be read beside the paper; it
is plain Python and not fast. The simulator's compiled loops are tested to equal it, and the two
sides of a federation call `local_steps`, `communicate` and `take_home` themselves.

The paper flips a coin after every step, one coin for all clients. Its first 1 comes at the K-th
flip with K ~ Geometric(p), so that a round is K local steps and then a communication: the loop
here is over rounds, and K is drawn beforehand.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from scafflix.core import streams
from scafflix.core.streams import Stream
from scafflix.methods.method import (
    Client,
    Local,
    Message,
    Method,
    Number,
    Point,
    Points,
    State,
    Turn,
)

Gradient = Callable[[Points, int], Points]  # (points asked about, step) -> estimates at them


class Round(NamedTuple):
    """Who takes part, how many local steps each makes, and what they draw from."""

    steps: int  # K
    cohort: Sequence[int]
    key: Any = None  # random, for all clients of the cohort
    # for a method whose clients stop by themselves, K_i: after so many steps, if at most K
    own_steps: Mapping[int, int] = {}
    server_key: Any = None  # random, for the server alone


class Outcome(NamedTuple):
    """The server and the private states of the clients after the last round."""

    server: State
    states: list[State]


def run(
    method: Method,
    clients: Sequence[Client],  # line 1: gamma_i, alpha_i; line 3: x_i*
    x0: Point,  # line 1
    h0: Sequence[Point],  # line 1, with sum_i alpha_i h_i = 0
    gradient: Callable[[int, int, Points, int], Points],  # (client, round, points, step)
    rounds: Sequence[Round],
) -> Outcome:
    """All of it."""
    server = method.init_server(x0)  # line 1
    states = [method.init_client(client, x0, h) for client, h in zip(clients, h0, strict=True)]
    for r, (K, cohort, key, own, server_key) in enumerate(rounds):  # lines 4 and 5
        sent = method.broadcast(server)
        turns = {i: Turn(key, place, len(cohort)) for place, i in enumerate(sorted(cohort))}
        those = {i: clients[i]._replace(turn=turns[i]) for i in cohort}
        reached: dict[int, Local] = {}
        for i in cohort:  # line 6

            def ask(points: Points, step: int, i: int = i, r: int = r) -> Points:
                return gradient(i, r, points, step)

            one = (method, clients[i], states[i], sent)
            reached[i] = local_steps(*one, min(own.get(i, K), K), ask, i in own and own[i] <= K)
        uploads = [upload(method, those[i], states[i], sent, reached[i]) for i in cohort]
        share = len(cohort) / len(clients)
        weights = np.array([weight for _, weight in uploads])
        mean = blurred(method, server_key, weighted_mean(uploads), unit_of(weights))
        server, after = communicate(method, server, K, mean, share)
        for i in cohort:  # line 13; line 16 for the others
            made = min(own.get(i, K), K)
            states[i] = method.commit(those[i], states[i], sent, reached[i], after, made)
    return Outcome(server, states)  # lines 17 and 18


def turn_of(seed: int, round: int, place: int, cohort: int) -> Turn:
    """A client's part in a round; all clients of the round make the same key."""
    return Turn(streams.at_round(seed, Stream.COMPRESSION, round), place, cohort)


def local_steps(
    method: Method,
    client: Client,
    state: State,
    sent: Any,
    steps: int,
    gradient: Gradient,
    stops: bool = False,
) -> Local:
    """Lines 7 to 9, and 15, at one client until it communicates, or stops by itself."""
    local = method.begin(client, state, sent)
    for step in range(steps):
        points = method.asks(client, state, sent, local)  # line 7: x~_i
        g = gradient(points, step)  # line 8: g_i
        last = stops and step + 1 == steps
        take = (last and method.stop) or method.local_step
        local = take(client, state, sent, local, g)  # line 9: x_hat_i
    return local


def upload(
    method: Method, client: Client, state: State, sent: Any, local: Local
) -> tuple[Message, Number]:
    """Line 11, at the client: what it sends, as it arrives, and how much it weighs."""
    message, weight = method.upload(client, state, sent, local)
    if method.compressor is not None:
        assert client.turn is not None
        message = method.compressor.apply(client.turn, message)
    return message, weight


def weighted_mean(uploads: Sequence[tuple[Message, Number]]) -> Message:
    """Line 11, at the server: sum_j w_j m_j / sum_j w_j; line 2 is the inverse of that total."""
    total = sum(weight for _, weight in uploads)

    def mean(*leaves: Any) -> Any:
        parts = zip(uploads, leaves, strict=True)
        return sum((weight / total) * leaf for (_, weight), leaf in parts)

    return jax.tree.map(mean, *(message for message, _ in uploads))


def unit_of(weights: Any) -> Any:
    """The deviation that the weighted mean of m independent numbers, each with the deviation
    1/sqrt(m), has: sqrt(mean_j w_j^2) / sum_j w_j."""
    return (weights**2).mean() ** 0.5 / weights.sum()


def blurred(method: Method, key: Any, mean: Message, unit: Number) -> Message:
    """Line 11, at the server: the mean that it goes on with, which is noisy if it is to add noise
    itself."""
    return mean if method.blur is None else method.blur(key, mean, unit)


def communicate(
    method: Method, server: State, steps: Number, mean: Message, share: Number
) -> tuple[State, Any]:
    """Lines 11 and 12 at the server: its next state, and what all clients receive."""
    server = method.combine(method.server_steps(server, steps), mean, share)
    return server, method.broadcast(server)


def take_home(method: Method, client: Client, state: State, x: Point, gradient: Gradient) -> Point:
    """After the last round, at each client: it may tune x by itself, and takes home its model."""
    if method.tune is not None:
        for step in range(int(method.tuning_steps)):
            g = gradient(method.personal(client, state, x), step)
            x = method.tune(client, state, x, g)
    return method.personal(client, state, x)
