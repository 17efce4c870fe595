"""What a method's messages tell of a client's data, read off the method's own program."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from scafflix.core.dependence import tainted
from scafflix.core.errors import ScafflixError
from scafflix.core.precision import in_float64
from scafflix.core.vector import Vector
from scafflix.gradients import points_of
from scafflix.methods.method import Client, Local, Method, Turn

COHORT = 64  # clients of the trial's round


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


def _flow(
    method: Method, names: Sequence[str], examples: bool, noisy: bool = True
) -> tuple[Chosen, bool]:
    """The arrays that must be released before a message is made of them; and whether a message
    then depends on a client's data through these alone. What is released is `noisy`, so that it
    may be kept and told again, or else is clipped only."""
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
        kept = free(local, chosen) if noisy else local
        marks = (client, state, sent, kept, sent, False)
        return tainted(settle, (*at, trial.sent, 1.0), marks)

    first = tainted(
        method.init_client, (trial.client, trial.x, trial.x), (client, *[_all(trial.x, False)] * 2)
    )
    state = _settled(committed, first)
    chosen, local = travelling(state)
    leaks = jax.tree.leaves(in_message(state, free(local, chosen)))
    origins = chosen.of(tainted(method.begin, at[:3], (client, state, sent)))
    return chosen, not any([*leaks, *origins])


def what_travels(method: Method, names: Sequence[str], noise_at: str = "client") -> Chosen:
    """The arrays of what a client iterates on that it must release; refuse a method whose messages
    depend on data in another way too, or that noise at the server would break."""
    at_server = noise_at == "server"
    chosen, enough = _flow(method, names, examples=False, noisy=not at_server)
    if not enough or not chosen.numbers:
        other = "such as fedavg, or noise_at client" if at_server else "such as scafflix or fedavg"
        raise ScafflixError(
            f"With {method.name} messages depend on what clients keep to themselves, beyond the "
            "point that they reach in a round, so that clipping and noise there do not hide it; "
            f"choose another method, {other}."
        )
    if at_server:
        _check_mean(method, Trial.of(method, names), chosen)
    return chosen


def _check_mean(method: Method, trial: Trial, chosen: Chosen) -> None:
    """Refuse a method that cannot go on from another mean than that of its messages."""
    local = jax.tree.map(lambda leaf: leaf + 0, trial.local)
    at = (trial.client, trial.state, trial.sent, local, trial.sent, 1.0)
    server = method.init_server(trial.x)
    message, _ = method.upload(in_round(trial.client), *at[1:4])

    def settled(*marked: bool) -> bool:
        """Whether what a client remembers depends on what it reached, or on what goes down next."""
        nothing = [_all(one, False) for one in at]
        nothing[3:5] = [_all(one, mark) for one, mark in zip(at[3:5], marked, strict=True)]

        def commit(client: Client, *rest: Any) -> Any:
            return method.commit(in_round(client), *rest)

        return any(jax.tree.leaves(tainted(commit, at, tuple(nothing))))

    def combined(server: Any, mean: Any) -> Any:
        return method.combine(method.server_steps(server, 1.0), mean, 1.0)

    moved = tainted(combined, (server, message), (_all(server, False), _all(message, True)))
    beside = sum(jax.tree.leaves(moved)) > sum(jax.tree.leaves(moved.x))
    if settled(False, True) or (beside and settled(True, False)):
        raise ScafflixError(
            f"With {method.name} clients keep what must fit the mean of their messages, such as "
            "control variates whose sum is 0, and noise that the server adds would pile up there; "
            "give noise_at client, or another method, such as fedavg."
        )
    sent, told = chosen.of(local), jax.tree.leaves(message)
    same = len(sent) == len(told) and all(a is b for a, b in zip(sent, told, strict=True))
    if not same or method.compressor is not None:
        raise ScafflixError(
            f"With {method.name} messages are not the clipped points themselves, so that how much "
            "noise hides one in their mean is not known; give noise_at client, or another method, "
            "such as fedavg."
        )


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
