"""A network on one node, in float32, with the random streams of the simulator's cohorts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import NDArray

from scafflix.core.digest import digest_of
from scafflix.core.store import Store
from scafflix.core.vector import Vector, names_of
from scafflix.data.federation import Federation
from scafflix.federate.draws import Draws, Secret
from scafflix.federate.judging import Judgement
from scafflix.federate.learner import Place, Scales, client_key, own_gradient
from scafflix.gradients import Exact, Gradient, Minibatch, Private, Reduced
from scafflix.methods.method import Points
from scafflix.models import NETWORKS
from scafflix.models.network import Network, Params
from scafflix.personalization.finding import find
from scafflix.personalization.optima import local_optima
from scafflix.personalization.recipe import GRID, Recipe
from scafflix.personalization.rules.choosing import rule_for, weighed
from scafflix.problems.evaluation import evaluate
from scafflix.problems.problem import Problem
from scafflix.problems.rows import Rows, Spans, batch_rows, first_rows, objective
from scafflix.runs.assembly import build_model
from scafflix.simulate.private_slopes import Drawn, Sampled, private_slopes


class NetworkLearner:
    """f_i of a network; theory gives no stepsize for it, so the server must."""

    scales = Scales()

    def __init__(
        self,
        federation: Federation,
        network: Network,
        l2: float = 0.0,
        *,
        gradient: Gradient | None = None,
        model_seed: int = 0,
        recipe: Recipe | None = None,
        draws: Draws | None = None,
    ) -> None:
        self.estimate = own_gradient(gradient, federation)
        self._draws = draws or Secret()
        self.problem = Problem(federation, network, l2)
        self.model_seed = model_seed
        self.recipe = recipe or Recipe(seed=model_seed)
        self._structure = jax.tree.structure(self.problem.template)
        value = partial(objective, network, self.problem.l2)
        if isinstance(self.estimate, Private):
            self._private = jax.jit(partial(_private_gradients, network, self.problem.l2))
        else:
            self._grad = jax.jit(partial(_gradient, value, self.estimate))
        self._full = jax.jit(partial(_gradient, value, Exact()))
        self._value = jax.jit(partial(_value, value, self.examples))

    @property
    def examples(self) -> int:
        return int(self.problem.train.counts[0])

    @property
    def fingerprint(self) -> str:
        return digest_of(self.problem.functions, repr(self.recipe), repr(self.model_seed))

    def start(self) -> Vector:
        return _flat(self.problem.start(self.model_seed))

    def gradient(self, point: Vector, place: Place) -> Vector:
        if isinstance(self.estimate, Private):
            return self.private_gradients([point], place)[0]
        rows, count = self.problem.train.rows, np.int32(self.examples)
        return _flat(self._grad(self._tree(point), rows, count, client_key(place)))

    def private_gradients(self, points: Sequence[Vector], place: Place) -> list[Vector]:
        """At all points on one sample, with noise of its own for each."""
        at = tuple(Vector(self._tree(point)) for point in points)
        sizes = [sum(leaf.size for leaf in point.tree) for point in points]
        noise = [self._draws.normals(place, number, (size,)) for number, size in enumerate(sizes)]
        uniform = self._draws.uniforms(place, self.examples)
        drawn = Drawn(jnp.asarray(uniform), [jnp.asarray(one) for one in noise])
        found = self._private(self.estimate, self.problem.train.rows, at, drawn)
        return [_flat(one.tree) for one in found]

    def full_gradient(self, point: Vector) -> Vector:
        rows, count = self.problem.train.rows, np.int32(self.examples)
        return _flat(self._full(self._tree(point), rows, count))

    def loss(self, point: Vector) -> float:
        return float(self._value(self._tree(point), self.problem.train.rows))

    def score(self, point: Vector) -> float:
        part = "test" if "test" in self.problem.parts else "train"
        return float(evaluate(self.problem, part, self._tree(point)).score[0])

    def optimum(self) -> Vector:
        """By stochastic gradients from the common start, as in the simulator."""
        found = local_optima(self.problem, self.problem.start(self.model_seed), self.recipe)
        stacked = found.x_star.read(np.arange(1))
        return _flat(jax.tree.map(lambda leaf: np.asarray(leaf)[0], stacked))

    def tuned(self, x: Vector, number: int) -> Vector:
        """The same from a model that is good already, with the stream of this client's number."""
        rates = GRID if self.recipe.stepsize is None else (self.recipe.stepsize,)
        points = jax.tree.map(lambda leaf: leaf[None], self._tree(x))
        those = np.zeros(1, np.int64), self.problem.mesh.size
        found = [
            find(self.problem, points, self.recipe, rate, *those, numbers=np.array([number]))
            for rate in rates
        ]
        best = min(found, key=lambda one: float(one.loss[0]))
        return _flat(jax.tree.map(lambda leaf: leaf[0], best.x))

    def rule(self, word: str) -> str:
        return rule_for(word, self.problem).name

    def judged(self, word: str, x_star: Vector, x: Vector, clients: int) -> Judgement:
        rule = rule_for(word, self.problem, clients)
        store = Store(self.problem.template, 1)
        store.write(np.arange(1), jax.tree.map(lambda leaf: leaf[None], self._tree(x_star)))
        found = rule.evidence(self.problem, store, self._tree(x))
        return Judgement(rule, *weighed(self.problem, rule, found))

    def test_loss(self, point: Vector) -> float:
        if "test" not in self.problem.parts:
            return np.nan
        return float(evaluate(self.problem, "test", self._tree(point)).loss[0])

    def named(self, point: Vector) -> dict[str, NDArray[Any]]:
        return dict(zip(names_of(self.problem.template), point.tree, strict=True))

    def _tree(self, point: Vector) -> Params:
        return jax.tree.unflatten(self._structure, point.tree)


def network_of(name: str, federation: Federation, classes: Sequence[Any]) -> Network:
    """A network by name, for labels 0, 1, ...; a node need not have all of them."""
    if name == "dense" and classes:
        return NETWORKS[name](federation.dim, int(max(classes)) + 1)
    made = build_model(name, federation)
    assert isinstance(made, Network)
    return made


def _flat(params: Params) -> Vector:
    return Vector(tuple(np.asarray(leaf) for leaf in jax.tree.leaves(params)))


def _gradient(
    value: Callable[..., Any],
    estimate: Exact | Minibatch | Reduced,
    x: Params,
    rows: Rows,
    count: Array,
    key: Array | None = None,
) -> Params:
    first = np.zeros((), np.int32)
    if isinstance(estimate, Exact):
        batch = first_rows(rows, first, count, rows.labels.shape[0])
    else:
        assert key is not None
        batch = batch_rows(rows, first, count, estimate.size, key)
    return jax.grad(value, has_aux=True)(x, *batch)[0]


def _private_gradients(
    network: Network, l2: float, estimate: Private, rows: Rows, at: Points, drawn: Drawn
) -> Points:
    count = drawn.uniform.shape[0]
    spans = Spans(np.zeros((), np.int32), np.array(count, np.int32))
    sampled = Sampled(network, l2, estimate.size, count, rows, spans)
    return private_slopes(sampled, estimate, at, drawn)[0]


def _value(value: Callable[..., Any], count: int, x: Params, rows: Rows) -> Array:
    length = np.array(count, np.int32)
    batch = first_rows(rows, np.zeros((), np.int32), length, count)
    return value(x, *batch)[0]
