"""Small federations for networks, and the ways in which the tests of cohorts run them.

Sizes are shared, so that a round is compiled once for many tests.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import jax
import numpy as np
import pytest
from jax.tree_util import Partial
from numpy.typing import NDArray

import scafflix as sx
from scafflix.core.store import Store
from scafflix.core.vector import names_of
from scafflix.data.federation import Examples, Federation
from scafflix.gradients import Exact, Gradient
from scafflix.methods import METHODS, Client, Method, parameters
from scafflix.methods.method import take_mixture
from scafflix.methods.private import ready
from scafflix.models.dense import dense
from scafflix.personalization.personalize import Personalization, Start
from scafflix.problems.evaluation import Home, evaluate
from scafflix.record import Record
from scafflix.simulate.cohorts import Trained, train
from scafflix.simulate.schedule import Schedule
from scafflix.theory import without_theory

FEATURES, CLASSES = 5, 3
TRAIN = (12, 21, 9, 30, 16, 25, 14)
HELD_OUT = (4, 6, 3, 9, 5, 0, 7)  # of test; the sixth client has none
VALIDATION = (3, 5, 4, 6, 3, 5, 4)
N = len(TRAIN)
ALPHA = np.array([0.3, 0.9, 0.5, 1.0, 0.2, 0.7, 0.6])
GAMMA = np.array([0.2, 0.05, 0.4, 0.1, 0.3, 0.15, 0.25])
L2 = 0.05


def _part(random: np.random.Generator, counts: tuple[int, ...]) -> Examples:
    parts = []
    for client, count in enumerate(counts):
        tilt = np.random.default_rng(100 + client).normal(size=(FEATURES, CLASSES))
        A = random.normal(size=(count, FEATURES)) + 0.2 * client
        parts.append((A, (A @ tilt + random.normal(size=(count, CLASSES))).argmax(axis=1)))
    features = np.concatenate([A for A, _ in parts]).astype(np.float32)
    offsets = np.concatenate([[0], np.cumsum(counts)])
    return Examples(features, np.concatenate([b for _, b in parts]), offsets)


@cache
def federation(clients: int = N) -> Federation:
    """Clients of unequal size whose labels follow unlike rules."""
    random = np.random.default_rng(3)

    def counts(of: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(np.resize(of, clients).tolist())

    return Federation(
        "miniature",
        tuple(f"client-{i}" for i in range(clients)),
        _part(random, counts(TRAIN)),
        _part(random, counts(HELD_OUT)),
        _part(random, counts(VALIDATION)),
    )


@cache
def problem(hidden: tuple[int, ...] = (), l2: float = L2, clients: int = N) -> sx.Problem:
    """Softmax regression, or a network with hidden layers."""
    return sx.Problem(federation(clients), dense(FEATURES, CLASSES, hidden), l2)


def points(small: sx.Problem, seed: int = 0, scale: float = 0.5) -> Store:
    """A random point for each client, to stand for x_i*."""
    random = np.random.default_rng(seed)
    store = Store(small.template, small.n)
    store.write(
        np.arange(small.n),
        jax.tree.map(
            lambda leaf: (scale * random.normal(size=(small.n, *leaf.shape))).astype(np.float32),
            small.template,
        ),
    )
    return store


def method(
    name: str,
    alpha: NDArray[np.float64],
    gamma: NDArray[np.float64],
    p: float = 0.3,
    gradient: Gradient | None = None,
    **options: Any,
) -> Method:
    """A method by name with chosen stepsizes."""
    return method_of(METHODS[name], alpha, gamma, p, gradient, **options)


def method_of(
    make: Callable[..., Method],
    alpha: NDArray[np.float64],
    gamma: NDArray[np.float64],
    p: float = 0.3,
    gradient: Gradient | None = None,
    **options: Any,
) -> Method:
    """A method with chosen stepsizes of those who take part, and those of the options that it
    has."""
    active = alpha > 0
    plan = without_theory(alpha[active], gamma[active], p, gradient or Exact())
    mu = np.full(len(plan.alpha), L2)
    plan = replace(plan, constants=plan.constants._replace(mu=mu))
    given = {"p": p, "own": "*/bias", "cap": 0.0, **options}
    return make(plan, **{key: value for key, value in given.items() if key in parameters(make)})


def person(small: sx.Problem, alpha: NDArray[np.float64], x_star: Store | None) -> Personalization:
    """Shares and points as they are given, from the start of seed 0."""
    return Personalization(alpha, x_star, start=Start(small.start(0)))


def run(
    small: sx.Problem,
    chosen: Method,
    alpha: NDArray[np.float64],
    x_star: Store | None,
    **schedule: Any,
) -> Trained:
    """Rounds from the start of seed 0, looked at only at the end."""
    asked = {"every": schedule.get("rounds", 1), **schedule}
    own = person(small, alpha, x_star)
    as_run = ready(chosen, names_of(small.template))
    return train(small, own, as_run, small.start(0), Schedule(**asked))


def record(
    small: sx.Problem,
    chosen: Method,
    alpha: NDArray[np.float64],
    x_star: Store | None,
    **options: Any,
) -> Record:
    """The same, as a user runs it."""
    return sx.run(small, person(small, alpha, x_star), chosen, **options)


def mixtures(alpha: NDArray[np.float64]) -> Home:
    """Everyone takes home the mixture."""
    one = np.ones(len(alpha), np.float32)
    return Home(Partial(take_mixture), Client(alpha.astype(np.float32), one, None, one, one))


def matrix(tree: Any) -> NDArray[np.float64]:
    """Softmax regression's parameters as one array, the bias as its last row."""
    layer = tree["layer0"]
    bias = np.asarray(layer["bias"], float)[..., None, :]
    return np.concatenate([np.asarray(layer["weight"], float), bias], axis=-2)


def flat(tree: Any) -> NDArray[np.float64]:
    """All numbers of a tree."""
    return np.concatenate([np.asarray(leaf, float).ravel() for leaf in jax.tree.leaves(tree)])


def controls(trained: Trained, chosen: Method, alpha: NDArray[np.float64]) -> NDArray[np.float64]:
    """h_i in Scafflix's scale, [clients, numbers]."""
    h = np.stack([flat(trained.states.read(np.array([i]))) for i in range(len(alpha))])
    return h if chosen.name == "scafflix" else h / alpha[:, None]


def spied_parts(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The parts of the data that are evaluated from now on, whoever asks."""
    seen: list[str] = []

    def spy(problem: Any, part: str, *arguments: Any, **named: Any) -> Any:
        seen.append(part)
        return evaluate(problem, part, *arguments, **named)

    for name, module in list(sys.modules.items()):
        if name.startswith("scafflix.") and vars(module).get("evaluate") is evaluate:
            monkeypatch.setattr(module, "evaluate", spy)
    return seen
