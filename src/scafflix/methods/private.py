"""Any method with differential privacy for its clients: what a client reached in a round is
clipped around where it began, and Gaussian noise is added, before anything is made of it.

The noise is on the local iterate, not on the message: `upload` and `commit` both go on from the
noisy one, so that what a method keeps between clients and server, such as sum_i alpha_i h_i = 0,
holds as without noise; and all that a client remembers of it is as noisy as what it has sent.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.tree_util import Partial

from scafflix.core.arguments import instance
from scafflix.core.dependence import tainted
from scafflix.core.errors import ScafflixError
from scafflix.core.precision import in_float64
from scafflix.core.vector import Vector
from scafflix.gradients import Private, points_of
from scafflix.methods.method import Client, Local, Method, Number, Turn, fitted
from scafflix.methods.remembering import remembering
from scafflix.privacy.terms import Release, checked_release
from scafflix.theory import NO_RATE

Inner = Callable[..., Any]  # a function of the method itself
NOISE = 1  # the part of a client's own stream that its noise comes from


def private(method: Method, clip: float, noise: float) -> Method:
    """The method with client-level privacy: its differences clipped to the norm `clip`, and
    Gaussian noise of standard deviation `noise` times `clip` in the sum over the clients of a
    round, of which each adds its part."""
    instance("method", method, Method, "a method, such as sx.scafflix(plan)")
    if isinstance(method.gradient, Private):
        raise ScafflixError(
            "The method's gradients are private already, for each example; leave out one of the "
            "two."
        )
    release = Release(*checked_release(clip, noise))
    changes = np.isfinite(release.clip) or release.noise > 0
    rate = NO_RATE if changes else method.rate  # no theorem covers clipped updates
    return replace(method, release=release, rate=rate)


@jax.tree_util.register_static
@dataclass(frozen=True)
class Chosen:
    """The arrays of what a client iterates on that its message is made of, by their numbers."""

    numbers: tuple[int, ...]

    def of(self, tree: Any) -> list[Any]:
        leaves = jax.tree.leaves(tree)
        return [leaves[k] for k in self.numbers]

    def put(self, tree: Any, arrays: Sequence[Any]) -> Any:
        """The tree with these arrays in their places."""
        leaves, form = jax.tree.flatten(tree)
        for k, array in zip(self.numbers, arrays, strict=True):
            leaves[k] = array
        return jax.tree.unflatten(form, leaves)


class Clip(NamedTuple):
    """How much passes, and the noise of one client's part."""

    most: Number
    noise: Number  # multiplier, of the sum over a cohort

    def part(self, cohort: Number) -> Number:
        """The standard deviation that each of so many clients adds."""
        return jnp.where(self.noise > 0, self.most * self.noise, 0.0) / jnp.sqrt(1.0 * cohort)


def clipped(most: Number, arrays: Sequence[Any], origins: Sequence[Any]) -> list[Any]:
    """The point, if it is within `most` of the origin, else the nearest that is."""
    away = [array - origin for array, origin in zip(arrays, origins, strict=True)]
    norm = jnp.sqrt(sum(jnp.sum(jnp.square(one)) for one in away))
    within, factor = norm <= most, most / jnp.where(norm > 0, norm, 1.0)
    return [
        jnp.where(within, array, origin + factor * one)
        for array, origin, one in zip(arrays, origins, away, strict=True)
    ]


def normals(key: Array, arrays: Sequence[Any]) -> list[Array]:
    """Independent normal numbers in the shapes and types of some arrays."""
    keys = jax.random.split(key, len(arrays))
    return [
        jax.random.normal(one, jnp.shape(array), jnp.result_type(array))
        for one, array in zip(keys, arrays, strict=True)
    ]


def released(
    begin: Inner, clip: Clip, chosen: Chosen, client: Client, state: Any, sent: Any, local: Local
) -> Local:
    """What the client goes on with: clipped, and noisy with numbers from its turn."""
    assert client.turn is not None
    origins = chosen.of(begin(client, state, sent))
    near = clipped(clip.most, chosen.of(local), origins)
    noise = normals(jax.random.fold_in(client.turn.own_key, NOISE), near)
    deviation = clip.part(client.turn.cohort)
    made = [
        (one + deviation * random).astype(jnp.result_type(one))
        for one, random in zip(near, noise, strict=True)
    ]
    return chosen.put(local, made)


def upload(
    inner: Inner, release: Inner, client: Client, state: Any, sent: Any, local: Local
) -> Any:
    return inner(client, state, sent, release(client, state, sent, local))


def commit(
    inner: Inner,
    release: Inner,
    client: Client,
    state: Any,
    sent: Any,
    local: Local,
    after: Any,
    steps: Number,
) -> Any:
    """With what was sent: the same numbers are drawn again."""
    return inner(client, state, sent, release(client, state, sent, local), after, steps)


def releasing(method: Method, names: Sequence[str]) -> Method:
    """The method as private clients run it, if it is to be private."""
    if isinstance(method.gradient, Private):
        check_examples(method, names)
    if method.release is None:
        return method
    chosen, (most, noise) = what_travels(method, names), (method.release.clip, method.release.noise)
    release = Partial(released, method.begin, Clip(most, noise), chosen)
    return replace(
        method,
        upload=Partial(upload, method.upload, release),
        commit=Partial(commit, method.commit, release),
        draws=True,
    )


def ready(method: Method, names: Sequence[str]) -> Method:
    """The method as clients run it: for a model whose arrays have these names, with its memory,
    and private where it is to be."""
    return releasing(remembering(fitted(method, names)), names)


COHORT = 64  # clients of the trial's round


def in_round(client: Client) -> Client:
    """The trial's client, with a turn, whose numbers are no arrays."""
    return client._replace(turn=Turn(jax.random.key(0), 0, COHORT))


class Trial(NamedTuple):
    """One round of a method at a client, with small arrays: what the functions take."""

    client: Client
    state: Any
    sent: Any
    local: Local
    x: Vector

    @classmethod
    def of(cls, method: Method, names: Sequence[str]) -> Trial:
        x = Vector(tuple(jnp.ones(8) for _ in names))
        client = Client(0.5, 0.25, x, 3.0, 4.0)
        sent = method.broadcast(method.init_server(x))
        state = method.init_client(client, x, x)
        return cls(client, state, sent, method.begin(client, state, sent), x)

    def secret(self) -> Client:
        """What of a client depends on its data: its local optimum."""
        hidden = jax.tree.map(lambda _: False, self.client)
        return hidden._replace(x_star=_all(self.x, True))


def _all(tree: Any, value: bool) -> Any:
    return jax.tree.map(lambda _: value, tree)


def _either(one: Any, other: Any) -> Any:
    return jax.tree.map(lambda a, b: a or b, one, other)


def _settled(step: Callable[[Any], Any], marks: Any) -> Any:
    """Marks to which the step adds no more."""
    more = _either(marks, step(marks))
    while jax.tree.leaves(more) != jax.tree.leaves(marks):
        marks, more = more, _either(more, step(more))
    return more


def _reached(method: Method, trial: Trial, state: Any, examples: bool) -> Local:
    """Which arrays of what a client iterates on depend on its data beyond what is noisy."""
    client, sent = trial.secret(), _all(trial.sent, False)
    at = (trial.client, trial.state, trial.sent, trial.local)
    asked = method.asks(*at)

    def step(local: Any) -> Any:
        g = _all(asked, True)
        if examples:  # alpha is 1: nobody mixes
            free = lambda c, s, t, l: method.asks(c._replace(x_star=None), s, t, l)  # noqa: E741, E731
            points = tainted(free, at, (client, state, sent, local))
            g = jax.tree.map(lambda _: any(jax.tree.leaves(points)), asked)
        marks = (client, state, sent, local, g)
        return tainted(method.local_step, (*at, asked), marks)

    first = tainted(method.begin, at[:3], (client, state, sent))
    return _settled(step, first)


def _flow(method: Method, names: Sequence[str], examples: bool) -> tuple[Chosen, bool]:
    """The arrays that must be released before a message is made of them; and whether a message
    then depends on a client's data through these alone."""
    trial = Trial.of(method, names)
    client, sent = trial.secret(), _all(trial.sent, False)
    at = (trial.client, trial.state, trial.sent, trial.local)

    def send(client: Client, *rest: Any) -> Any:
        return method.upload(in_round(client), *rest)

    def settle(client: Client, *rest: Any) -> Any:
        return method.commit(in_round(client), *rest)

    def in_message(state: Any, local: Any) -> Any:
        return tainted(send, at, (client, state, sent, local))

    def free(local: Local, chosen: Chosen) -> Any:
        return chosen.put(local, [False] * len(chosen.numbers))

    def travelling(state: Any) -> tuple[Chosen, Local]:
        local = _reached(method, trial, state, examples)
        leaves, form = jax.tree.flatten(local)
        alone = [[k == j for j in range(len(leaves))] for k in range(len(leaves))]
        nothing = _all(trial.state, False)
        clean = jax.tree.map(lambda _: False, client)
        needed = [
            any(
                jax.tree.leaves(
                    tainted(send, at, (clean, nothing, sent, jax.tree.unflatten(form, one)))
                )
            )
            for one in alone
        ]
        numbers = tuple(k for k, leaf in enumerate(leaves) if leaf and needed[k])
        return Chosen(numbers), local

    def committed(state: Any) -> Any:
        chosen, local = travelling(state)
        marks = (client, state, sent, free(local, chosen), sent, False)
        return tainted(settle, (*at, trial.sent, 1.0), marks)

    first = tainted(
        method.init_client, (trial.client, trial.x, trial.x), (client, *[_all(trial.x, False)] * 2)
    )
    state = _settled(committed, first)
    chosen, local = travelling(state)
    leaks = jax.tree.leaves(in_message(state, free(local, chosen)))
    origins = chosen.of(tainted(method.begin, at[:3], (client, state, sent)))
    return chosen, not any([*leaks, *origins])


def what_travels(method: Method, names: Sequence[str]) -> Chosen:
    """The arrays of what a client iterates on that it must release; refuse a method whose messages
    depend on data in another way too."""
    chosen, enough = _flow(method, names, examples=False)
    if not enough or not chosen.numbers:
        raise ScafflixError(
            f"With {method.name} messages depend on what clients keep to themselves, beyond the "
            "point that they reach in a round, so that clipping and noise there do not hide it; "
            "choose another method, such as scafflix or fedavg."
        )
    return chosen


def check_examples(method: Method, names: Sequence[str]) -> None:
    """Refuse a method whose messages depend on data other than by gradients."""
    chosen, enough = _flow(method, names, examples=True)
    if chosen.numbers or not enough:
        raise ScafflixError(
            f"With {method.name} messages depend on data other than by the gradients, which are "
            "all that noise is added to; choose another method, or privacy client."
        )


def points_asked(method: Method, names: Sequence[str]) -> int:
    """How many gradients a client asks for in a step."""
    trial = Trial.of(method, names)
    return len(points_of(method.asks(trial.client, trial.state, trial.sent, trial.local))[0])


@in_float64
def weights_of(method: Method, names: Sequence[str], clients: Client) -> np.ndarray[Any, Any]:
    """What the message of each client weighs in the mean."""
    trial = Trial.of(method, names)

    def weight(one: Client) -> Any:
        full = in_round(one._replace(x_star=trial.x))
        return method.upload(full, trial.state, trial.sent, trial.local)[1]

    axes = Client(0, 0, None, 0, None)
    return np.broadcast_to(np.asarray(jax.vmap(weight, (axes,))(clients)), np.shape(clients.alpha))
