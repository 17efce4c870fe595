"""Algorithm 1's loop over iterations, compiled once, for many runs side by side.

The runs of a sweep share the data, and one pass over it serves all of them; each run has its own
coin, communicates when its own coin says so, and waits at the end of a chunk of rounds.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from scafflix import theory
from scafflix.flix import Optimum
from scafflix.methods.method import Client, Method
from scafflix.personalize import mixture
from scafflix.problem import Losses
from scafflix.vector import Vector


class Runs(NamedTuple):
    """What distinguishes the runs of a sweep; every leaf has the runs in front."""

    method: Method
    alpha: Array  # [runs, clients]
    optimum: Optimum
    keys: Array  # of the stream of stochastic gradients

    @property
    def clients(self) -> Client:
        return Client(self.alpha, self.method.gamma)


class Carry(NamedTuple):
    """Where every run stands; the points and the states of the clients have a client axis."""

    x: Vector  # x_i^t
    states: Any  # private states of the clients, such as h_i
    server: Any
    iteration: Array  # t
    round: Array  # communications so far
    left: Array  # local steps until the next communication


def lyapunov(run: Runs, x: Vector, states: Any) -> Array:
    """Psi of one run."""
    h = jax.vmap(run.method.controls)(run.clients, states)
    return theory.lyapunov(
        run.alpha,
        run.method.gamma,
        run.method.p,
        x.tree,
        None if h is None else h.tree,
        run.optimum.x,
        run.optimum.h,
    )


def _start(run: Runs, x0: Array, h0: Array) -> Carry:
    clients, n = run.clients, len(run.alpha)
    server = run.method.init_server(Vector(x0))
    states = jax.vmap(run.method.init_client, in_axes=(0, None, 0))(clients, Vector(x0), Vector(h0))
    x = Vector(jnp.broadcast_to(run.method.broadcast(server).tree, (n, *x0.shape)))
    zero = jnp.zeros((), int)
    return Carry(x, states, server, zero, zero, zero)


def _local_step(run: Runs, carry: Carry, g: Vector) -> Vector:
    """Lines 8 and 9 at all clients of one run."""
    return jax.vmap(run.method.local_step)(run.clients, carry.states, carry.x, g)


def _communicate(run: Runs, carry: Carry, x_hat: Vector, steps: Array, next_steps: Array) -> Carry:
    """Lines 11 to 13 for one run, after a round of as many steps."""
    method, clients = run.method, run.clients
    messages, weights = jax.vmap(method.upload)(clients, carry.states, x_hat)
    weights = jnp.broadcast_to(weights, run.alpha.shape)
    mean = jax.tree.map(
        lambda m: jnp.einsum("n,n...->...", weights, m) / jnp.sum(weights), messages
    )
    server = method.combine(carry.server, mean)
    x_bar = method.broadcast(server)
    states = jax.vmap(method.commit, in_axes=(0, 0, 0, None, None))(
        clients, carry.states, x_hat, x_bar, steps
    )
    x = jax.tree.map(lambda new, old: jnp.broadcast_to(new, old.shape), x_bar, carry.x)  # line 12
    return Carry(x, states, server, carry.iteration + 1, carry.round + 1, next_steps)


def _choose(condition: Array, yes: Any, no: Any) -> Any:
    """Run by run."""
    return jax.tree.map(
        lambda a, b: jnp.where(condition.reshape(-1, *(1,) * (a.ndim - 1)), a, b), yes, no
    )


@jax.jit
def start(runs: Runs, x0: Array, h0: Array) -> Carry:
    """Line 1: where every run starts, from x0 `[*shape]` and h0 `[runs, clients, *shape]`."""
    return jax.vmap(_start, in_axes=(0, None, 0))(runs, x0, h0)


@partial(jax.jit, donate_argnames="carry")
def advance(
    losses: Losses,
    x_star: Array,
    runs: Runs,
    carry: Carry,
    steps: Array,
    first: Array,
    stop: Array,
) -> tuple[Carry, Array, Array]:
    """Take every run from round `first` to round `stop`, by the schedule `steps` of K's.

    Also returns the model and Psi before the first and after each round: `[runs, 1 + capacity]`.
    """
    number, capacity = steps.shape
    everyone = jnp.arange(number)
    psi = jax.vmap(lyapunov)(runs, carry.server.x, carry.states)

    def iterate(state: tuple[Carry, Array, Array]) -> tuple[Carry, Array, Array]:
        carry, models, psis = state
        x_tilde = mixture(runs.alpha, carry.x.tree, x_star[None])  # line 7
        keys = jax.vmap(jax.random.fold_in)(runs.keys, carry.iteration)
        g = Vector(runs.method.gradient.estimate(losses, x_tilde, keys))  # line 8
        x_hat = jax.vmap(_local_step)(runs, carry, g)  # line 9
        running = carry.round < stop
        talks = running & (carry.left == 1)  # line 10
        stepped = carry._replace(
            x=_choose(running, x_hat, carry.x),  # line 15
            iteration=carry.iteration + running,
            left=carry.left - running,
        )
        slot = carry.round - first

        def communicate() -> tuple[Carry, Array]:
            next_steps = steps.at[everyone, slot + 1].get(mode="clip")
            spoken = jax.vmap(_communicate)(runs, carry, x_hat, steps[everyone, slot], next_steps)
            psi = jax.vmap(lyapunov)(runs, spoken.server.x, spoken.states)
            return _choose(talks, spoken, stepped), psi

        after, psi = jax.lax.cond(jnp.any(talks), communicate, lambda: (stepped, jnp.zeros(number)))
        # a run that did not communicate writes beyond the end, that is nowhere
        place = everyone, jnp.where(talks, slot + 1, capacity + 1)
        models = models.at[place].set(after.server.x.tree, mode="drop")
        return after, models, psis.at[place].set(psi, mode="drop")

    models = jnp.zeros((number, capacity + 1, *x_star.shape[1:])).at[:, 0].set(carry.server.x.tree)
    psis = jnp.zeros((number, capacity + 1)).at[:, 0].set(psi)
    return jax.lax.while_loop(
        lambda state: jnp.any(state[0].round < stop),
        iterate,
        (carry._replace(left=steps[:, 0]), models, psis),
    )
