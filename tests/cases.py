"""Small problems that many tests share, each beside the reference's functions f_i.

They have the same shapes, so that a method is compiled once for all tests of a model.
"""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

import reference
import scafflix as sx
from scafflix.core.precision import in_float64
from scafflix.core.streams import Stream, key
from scafflix.methods import METHODS, Client, Method, parameters
from scafflix.methods.remembering import remembering
from scafflix.simulate import loop
from scafflix.simulate.batch import own_steps, steps_of, uniforms
from scafflix.simulate.planning import optima
from scafflix.theory import Plan

# one of each kind, where all would take long: tests of the contract run over all
SOME_METHODS = ("scafflix", "fedavg", "scaffold", "tamuna", "apfl")
# the others keep some arrays of a model at home, and a linear model has one
ON_LINEAR = tuple(name for name, make in METHODS.items() if "own" not in parameters(make))
KINDS = ("logistic", "softmax", "linear")
SIZES = (9, 14, 23, 7, 31)
ALPHA = np.array([1.0, 0.5, 0.1, 0.8, 0.3])
DIM = 6
L2 = 0.1
ROUNDS = 12


class Case(NamedTuple):
    """A problem, the same functions by the reference, and alphas that differ."""

    problem: sx.Problem
    functions: list[reference.Function]
    person: sx.Personalization
    plan: Plan

    def mixed(self, alpha: NDArray[np.float64]) -> list[reference.Function]:
        """The reference's f~_i."""
        stars = np.asarray(self.person.x_star)
        return [
            reference.mixed(f, a, x) for f, a, x in zip(self.functions, alpha, stars, strict=True)
        ]


@cache
def federation(kind: str) -> sx.data.Federation:
    """Clients of unequal size, scale and distribution."""
    random = np.random.default_rng(KINDS.index(kind))
    parts = {}
    for i, m in enumerate(SIZES):
        A = random.normal(size=(m, DIM)) * (0.5 + 0.5 * i) + 0.3 * random.normal(size=DIM)
        score = A @ random.normal(size=(DIM, 3)) + random.normal(size=(m, 3))
        b = {
            "logistic": np.where(score[:, 0] > 0, 1, -1),
            "softmax": score.argmax(axis=1),
            "linear": score[:, 0],
        }[kind]
        parts[f"client-{i}"] = (A, b)
    return sx.data.from_clients(parts)


def problem(kind: str, smoothness: str = "tight") -> sx.Problem:
    """The problem of one model."""
    return sx.Problem(federation(kind), sx.models.MODELS[kind](), L2, smoothness)


def examples(kind: str) -> list[tuple[NDArray[np.float64], NDArray[np.float64]]]:
    """Each client's features and labels."""
    train = federation(kind).train
    cuts = train.offsets[1:-1]
    parts = zip(np.split(train.features, cuts), np.split(train.labels, cuts), strict=True)
    return [(A, b.astype(float)) for A, b in parts]


@cache
def case(kind: str) -> Case:
    """The problem of one model with everything that goes with it."""
    small = problem(kind)
    person = sx.personalize(small, ALPHA)
    functions = [reference.FUNCTIONS[kind](A, b, L2) for A, b in examples(kind)]
    return Case(small, functions, person, sx.plan(small, person))


class Snapshot(NamedTuple):
    """Where the clients stand after a round."""

    x: NDArray[np.float64]  # the model, [*shape]
    h: NDArray[np.float64] | None  # the control variates in Scafflix's scale, [clients, *shape]
    iterations: int


class Course(NamedTuple):
    """A run followed round by round, and its schedule."""

    snapshots: list[Snapshot]
    local_steps: list[int]


PURPOSES = (Stream.GRADIENT, Stream.COMPRESSION, Stream.SERVER)


@in_float64
def one_run(
    small: sx.Problem, person: sx.Personalization, method: Method, seed: int = 0
) -> loop.Runs:
    """What the engine's loop takes, for a single run."""
    (optimum,) = optima(small, [person])
    # as the engine stacks runs, so that the compiled program is the same
    stacked = jax.tree.map(
        lambda leaf: jnp.asarray(np.stack([leaf])), (method, person.alpha, optimum)
    )
    keys = [key(seed, stream)[None] for stream in PURPOSES]
    return loop.Runs(*stacked, *keys, person.active.astype(np.int32)[None])


@in_float64
def follow(
    small: sx.Problem,
    person: sx.Personalization,
    method: Method,
    *,
    rounds: int = ROUNDS,
    seed: int = 0,
    h0: Any = None,
) -> Course:
    """Go round by round through the engine's loop, from x = 1, and look at the states."""
    method = remembering(method)
    runs = one_run(small, person, method, seed)
    first = np.zeros((small.n, *small.shape)) if h0 is None else h0
    shared = (small.losses, person.x_star, runs)
    carry = loop.start(*shared, jnp.ones(small.shape), jnp.asarray(first)[None])
    snapshots = [_snapshot(*shared, carry)]
    drawn = []
    for done in range(rounds):
        steps = steps_of(method, seed, done, ROUNDS)
        drawn.append(int(steps[0]))
        own = None
        if method.own_steps is not None:
            clients = Client(person.alpha, np.asarray(method.gamma))
            draws = uniforms(seed, done, np.arange(small.n), small.n)
            # of the round that is played; the others of the schedule are not looked at
            mine = own_steps(method, clients, int(steps[0]), draws)
            own = jnp.asarray(np.broadcast_to(mine, (1, ROUNDS, small.n)))
        carry, *_ = loop.advance(*shared, carry, jnp.asarray(steps)[None], own, done, done + 1)
        snapshots.append(_snapshot(*shared, carry))
    return Course(snapshots, drawn)


def _snapshot(losses: Any, x_star: Any, runs: loop.Runs, carry: loop.Carry) -> Snapshot:
    clients = loop.clients_of(runs, losses, x_star)
    controls = jax.vmap(lambda run, *one: jax.vmap(run.method.controls)(*one), (0, loop.EACH, 0))
    h = controls(runs, clients, carry.states)
    # copies: the loop gives its buffers away
    return Snapshot(
        np.array(carry.server.x.tree[0]),
        None if h is None else np.array(h.tree[0]),
        int(carry.iteration[0]),
    )
