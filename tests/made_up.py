"""A method that no paper has: it uses every freedom of the contract at once.

Its states do not start at zero, two points go down and two come up, a client goes on from a point
of its own, asks about two points on one sample, stops by itself in a way of its own, weighs by its
examples, and takes home a model of its own after steps that it makes by itself, by the number of
the model's arrays; messages are
changed on their way, by what the clients of a round draw together and alone, and so are states;
the server makes steps of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.tree_util import Partial

from scafflix.methods.method import Client, Method, Number, Point, Turn, geometric
from scafflix.personalization.mixing import mix
from scafflix.theory import NO_RATE, Plan


class State(NamedTuple):
    v: Point
    c: Point


class Server(NamedTuple):
    m: Point
    x: Point


class Sent(NamedTuple):
    m: Point
    x: Point


class Local(NamedTuple):
    x: Point
    v: Point


def init_client(client: Client, x0: Point, h0: Point) -> State:
    return State(client.alpha * x0 + h0, (0.01 * client.examples) * x0)


def init_server(x0: Point) -> Server:
    return Server(0.2 * x0, x0)


def broadcast(server: Server) -> Sent:
    return Sent(server.m, server.x + 0.1 * server.m)


def begin(client: Client, state: State, sent: Sent) -> Local:
    return Local(0.9 * sent.x + 0.1 * state.v, state.v)


def asks(client: Client, state: State, sent: Sent, local: Local) -> tuple[Point, Point]:
    return mix(client.alpha, local.x, client.x_star), local.v


def local_step(pull: Number, client: Client, state: State, sent: Sent, local: Local, g: Any) -> Any:
    at_mixture, at_own = g
    x = local.x - (0.5 * client.step * client.alpha) * at_mixture - pull * (local.x - sent.x)
    v = local.v - (0.5 * client.gamma) * (at_own + pull * (local.v - sent.m) + 0.1 * state.c)
    return Local(x, v)


def stop(client: Client, state: State, sent: Sent, local: Local, g: Any) -> Local:
    at_mixture, _ = g
    return Local(local.x - (0.1 * client.step) * at_mixture, 0.9 * local.v + 0.1 * state.c)


def upload(client: Client, state: State, sent: Sent, local: Local) -> tuple[Any, Number]:
    return (local.x - (0.9 + 0.1 * drawn(client)) * sent.x, local.v - state.c), client.examples


def drawn(client: Client) -> Number:
    """By what all clients of the round know, and by which of them it is."""
    assert client.turn is not None
    order = jax.random.permutation(client.turn.key, client.turn.cohort)
    return ((1 + order[client.turn.place]) / client.turn.cohort).astype(jnp.float32)


def server_steps(server: Server, steps: Number) -> Server:
    return Server(0.9**steps * server.m, server.x)


def combine(server: Server, mean: Any, share: Number) -> Server:
    step, other = mean
    return Server(0.5 * server.m + (0.1 * share) * other, server.x + step)


def commit(
    client: Client, state: State, sent: Sent, local: Local, after: Sent, steps: Number
) -> State:
    c = state.c + (0.1 / (client.clients * steps)) * (after.x - sent.x)
    return State(local.v, 0.9 * c + (0.05 * drawn(client)) * local.x)


def personal(client: Client, state: State, x: Point) -> Point:
    return mix(client.alpha, x, state.v)


def tune(pull: Number, client: Client, state: State, x: Point, g: Point) -> Point:
    return x - (0.5 * client.gamma) * g - pull * (x - state.c)


def own_steps(client: Client, steps: Number, uniform: Number) -> Number:
    return np.ceil(uniform * (steps + 1))


@jax.tree_util.register_static
@dataclass(frozen=True)
class Stretched:
    """Somewhat larger or smaller, as the client's own key will have it."""

    least: float

    def apply(self, turn: Turn, message: Any) -> Any:
        factor = self.least + 0.5 * jax.random.uniform(turn.own_key, dtype=jnp.float32)
        return jax.tree.map(lambda leaf: leaf * factor.astype(leaf.dtype), message)

    def bits(self, message: Any, cohort: int) -> int:
        return sum(8 * leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(message))

    def encode(self, turn: Turn, message: Any) -> Any:
        return tuple(map(np.asarray, jax.tree.leaves(message)))

    def decode(self, turn: Turn, arrays: Any, template: Any) -> Any:
        return self.apply(turn, jax.tree.unflatten(jax.tree.structure(template), arrays))


def fit(method: Method, names: Sequence[str]) -> Method:
    return replace(method, tuning_steps=1 + len(names))


def made_up(plan: Plan, p: float = 0.4, pull: float = 0.05) -> Method:
    return Method(
        name="made_up",
        settings={"p": p, "pull": pull},
        gamma=plan.gamma,
        limit=plan.gamma,
        p=p,
        rate=NO_RATE,
        gradient=plan.gradient,
        made_for=plan.made_for,
        init_client=Partial(init_client),
        init_server=Partial(init_server),
        broadcast=Partial(broadcast),
        begin=Partial(begin),
        asks=Partial(asks),
        local_step=Partial(local_step, pull),
        upload=Partial(upload),
        server_steps=Partial(server_steps),
        combine=Partial(combine),
        commit=Partial(commit),
        personal=Partial(personal),
        tune=Partial(tune, pull),
        fit=Partial(fit),
        local_steps=Partial(geometric, p),
        own_steps=Partial(own_steps),
        stop=Partial(stop),
        compressor=Stretched(0.75),
    )
