"""Algorithm 1 over iterations, compiled once, for all clients of many runs side by side.

The runs of a sweep share the data, and one pass over it serves all of them; each run has its own
coin, communicates when its own coin says so, and waits at the end of a chunk of rounds. It is
`algorithm.run` with everybody in every round, and tested to be.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from scafflix import algorithm, theory
from scafflix.core.compilation import SIMPLE_LOOPS
from scafflix.core.vector import Vector, choose
from scafflix.methods.method import Client, Local, Method, Points, Turn
from scafflix.personalization.flix import Optimum
from scafflix.problems.losses import Losses


class Runs(NamedTuple):
    """What distinguishes the runs of a sweep; every leaf has the runs in front."""

    method: Method
    alpha: Array  # [runs, clients]
    optimum: Optimum
    keys: Array  # of the stream of stochastic gradients
    compression: Array  # keys of the stream that messages are compressed by
    server: Array  # keys of the stream that the server draws from
    numbers: Array  # [runs, clients], who the clients are: a random stream is each one's own


class Carry(NamedTuple):
    """Where every run stands; what belongs to the clients has a client axis."""

    local: Local  # what the clients iterate on, x_i^t
    states: Any  # private states of the clients, such as h_i
    server: Any
    iteration: Array  # t
    round: Array  # communications so far
    left: Array  # local steps until the next communication


EACH = Client(0, 0, None, None, None)  # alpha and gamma differ from run to run, the rest does not


def clients_of(runs: Runs, losses: Losses, x_star: Array) -> Client:
    """The clients of all runs, with a client axis on every leaf, behind that of the runs."""
    n = len(losses.counts)
    everybody = jnp.full(n, float(n))
    return Client(runs.alpha, runs.method.gamma, Vector(x_star), losses.counts, everybody)


def lyapunov(method: Method, optimum: Optimum, clients: Client, x: Vector, states: Any) -> Array:
    """Psi of one run."""
    h = jax.vmap(method.controls)(clients, states)
    controls = None if h is None else h.tree
    return theory.lyapunov(
        clients.alpha, clients.gamma, method.p, x.tree, controls, optimum.x, optimum.h
    )


def _init(run: Runs, clients: Client, x0: Array, h0: Array) -> tuple[Any, Any]:
    """Line 1 in one run: the server, and the states of the clients."""
    states = jax.vmap(run.method.init_client, (0, None, 0))(clients, Vector(x0), Vector(h0))
    return run.method.init_server(Vector(x0)), states


@jax.jit
def start(losses: Losses, x_star: Array, runs: Runs, x0: Array, h0: Array) -> Carry:
    """Line 1: where every run starts, from x0 `[*shape]` and h0 `[runs, clients, *shape]`."""

    def one(run: Runs, clients: Client, h0: Array) -> Carry:
        method = run.method
        server, states = _init(run, clients, x0, h0)
        local = jax.vmap(method.begin, (0, 0, None))(clients, states, method.broadcast(server))
        zero = jnp.zeros((), int)
        return Carry(local, states, server, zero, zero, zero)

    return jax.vmap(one, (0, EACH, 0))(runs, clients_of(runs, losses, x_star), h0)


@jax.jit
def start_psi(
    losses: Losses, x_star: Array, groups: list[Runs], x0: Array, h0: list[Array]
) -> list[Array]:
    """Psi^0 of runs of many kinds of methods: one program for all, with nothing else in it."""

    def one(run: Runs, clients: Client, h0: Array) -> Array:
        server, states = _init(run, clients, x0, h0)
        return lyapunov(run.method, run.optimum, clients, server.x, states)

    return [
        jax.vmap(one, (0, EACH, 0))(runs, clients_of(runs, losses, x_star), controls)
        for runs, controls in zip(groups, h0, strict=True)
    ]


def _asks(run: Runs, clients: Client, carry: Carry) -> Points:
    """Line 7 at all clients of one run."""
    sent = run.method.broadcast(carry.server)
    return jax.vmap(run.method.asks, (0, 0, None, 0))(clients, carry.states, sent, carry.local)


def _local_step(
    run: Runs, clients: Client, carry: Carry, g: Points, own: Array | None, number: Array
) -> Local:
    """Line 9 at all clients of one run, in step `number` of the round; some stop before or in it,
    where `own` says so."""
    method, sent = run.method, run.method.broadcast(carry.server)
    one = (clients, carry.states, sent, carry.local, g)
    local = jax.vmap(method.local_step, (0, 0, None, 0, 0))(*one)
    if own is None:
        return local
    if method.stop is not None:
        last = jax.vmap(method.stop, (0, 0, None, 0, 0))(*one)
        local = choose(number + 1 == own, last, local)
    return choose(number < own, local, carry.local)


def _communicate(
    run: Runs,
    clients: Client,
    carry: Carry,
    local: Local,
    steps: Array,
    own: Array,
    next_steps: Array,
) -> Carry:
    """Lines 11 to 13 for one run, after a round of K steps, at each client `own`."""
    method, sent = run.method, run.method.broadcast(carry.server)
    places = jnp.arange(len(run.alpha))
    key = jax.random.fold_in(run.compression, carry.round)

    def in_round(client: Client, place: Array) -> Client:
        return client._replace(turn=Turn(key, place, len(run.alpha)))

    def upload(client: Client, place: Array, state: Any, local: Local) -> Any:
        return algorithm.upload(method, in_round(client, place), state, sent, local)

    messages, weights = jax.vmap(upload)(clients, places, carry.states, local)
    weights = jnp.broadcast_to(weights, run.alpha.shape)
    mean = jax.tree.map(
        lambda m: jnp.einsum("n,n...->...", weights, m) / jnp.sum(weights), messages
    )
    server_key = jax.random.fold_in(run.server, carry.round)
    mean = algorithm.blurred(method, server_key, mean, algorithm.unit_of(weights))
    server, after = algorithm.communicate(method, carry.server, steps, mean, 1.0)

    def commit(client: Client, place: Array, state: Any, local: Local, steps: Array) -> Any:
        return method.commit(in_round(client, place), state, sent, local, after, steps)

    states = jax.vmap(commit)(clients, places, carry.states, local, own)  # line 13
    local = jax.vmap(method.begin, (0, 0, None))(clients, states, after)
    following = (server, carry.iteration + 1, carry.round + 1, next_steps)
    return Carry(local, states, *following)


def client_keys(key: Array, round: Array, numbers: Array, step: Array) -> Array:
    """From which each client draws in one step: by the seed, the round, the client, the step."""
    key = jax.random.fold_in(key, round)
    return jax.vmap(lambda number: jax.random.fold_in(jax.random.fold_in(key, number), step))(
        numbers
    )


@partial(jax.jit, donate_argnames="carry", compiler_options=SIMPLE_LOOPS)
def advance(
    losses: Losses,
    x_star: Array,
    runs: Runs,
    carry: Carry,
    steps: Array,
    own: Array | None,
    first: Array,
    stop: Array,
) -> tuple[Carry, Array, Array]:
    """Take every run from round `first` to round `stop`, by the schedule `steps` of K's and,
    for a method whose clients stop by themselves, `own` of K_i's `[runs, rounds, clients]`.

    Also returns the model and Psi before the first and after each round: `[runs, 1 + capacity]`.
    """
    number, capacity = steps.shape
    everyone = jnp.arange(number)
    clients = clients_of(runs, losses, x_star)
    measure = jax.vmap(lyapunov, (0, 0, EACH, 0, 0))

    def iterate(state: tuple[Carry, Array, Array]) -> tuple[Carry, Array, Array]:
        carry, models, psis = state
        slot = carry.round - first
        K = steps.at[everyone, slot].get(mode="clip")
        keys = jax.vmap(client_keys)(runs.keys, carry.round, runs.numbers, K - carry.left)
        asked = jax.vmap(_asks, (0, EACH, 0))(runs, clients, carry)  # line 7
        g = runs.method.gradient.answer(losses, asked, keys)  # line 8: all points on one sample
        stops = None if own is None else own.at[everyone, slot].get(mode="clip")
        local = jax.vmap(_local_step, (0, EACH, 0, 0, 0, 0))(  # line 9
            runs, clients, carry, g, stops, K - carry.left
        )
        mine = jnp.broadcast_to(K[:, None], runs.alpha.shape)
        mine = mine if stops is None else jnp.minimum(mine, stops)
        running = carry.round < stop
        talks = running & (carry.left == 1)  # line 10
        stepped = carry._replace(
            local=choose(running, local, carry.local),  # line 15
            iteration=carry.iteration + running,
            left=carry.left - running,
        )

        def communicate() -> tuple[Carry, Array]:
            next_steps = steps.at[everyone, slot + 1].get(mode="clip")
            spoken = jax.vmap(_communicate, (0, EACH, 0, 0, 0, 0, 0))(
                runs, clients, carry, local, K, mine, next_steps
            )
            psi = measure(runs.method, runs.optimum, clients, spoken.server.x, spoken.states)
            return choose(talks, spoken, stepped), psi

        after, psi = jax.lax.cond(jnp.any(talks), communicate, lambda: (stepped, jnp.zeros(number)))
        # a run that did not communicate writes beyond the end, that is nowhere
        place = everyone, jnp.where(talks, slot + 1, capacity + 1)
        models = models.at[place].set(after.server.x.tree, mode="drop")
        return after, models, psis.at[place].set(psi, mode="drop")

    before = measure(runs.method, runs.optimum, clients, carry.server.x, carry.states)
    models = jnp.zeros((number, capacity + 1, *x_star.shape[1:])).at[:, 0].set(carry.server.x.tree)
    psis = jnp.zeros((number, capacity + 1)).at[:, 0].set(before)
    return jax.lax.while_loop(
        lambda state: jnp.any(state[0].round < stop),
        iterate,
        (carry._replace(left=steps[:, 0]), models, psis),
    )
