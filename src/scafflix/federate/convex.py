"""A linear model on one node, in float64, with the random streams of the simulator's loop."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import jax
import numpy as np
from jax import Array
from numpy.typing import NDArray

from scafflix import theory
from scafflix.core.digest import digest_of
from scafflix.core.errors import ScafflixError
from scafflix.core.precision import in_float64
from scafflix.core.vector import Vector
from scafflix.data.federation import Federation
from scafflix.federate.draws import Draws, Secret
from scafflix.federate.judging import Judgement
from scafflix.federate.learner import Place, Scales, client_key, own_gradient
from scafflix.federate.naming import WHOLE
from scafflix.gradients import Exact, Gradient, Private
from scafflix.methods.method import Points
from scafflix.models.linear import LinearModel, Targets
from scafflix.personalization.exact import exact_optima
from scafflix.personalization.rules.choosing import rule_for, weighed
from scafflix.problems.losses import Losses
from scafflix.problems.problem import Problem
from scafflix.simulate.together import start_point


def targets_of(
    federation: Federation, model: LinearModel, classes: tuple[str | float, ...] | None
) -> Targets | None:
    """The labels' meaning if it is agreed in advance, since a node may lack a class."""
    if classes is None:
        return None
    labels = np.concatenate([part.labels for part in federation.parts.values()])
    agreed = np.array(classes).astype(labels.dtype)
    unknown = np.setdiff1d(labels, agreed)
    if len(unknown):
        raise ScafflixError(
            f"A label is {unknown[0]}, which is not among the classes {classes}; add it to classes."
        )
    made = model.encode(np.concatenate([labels, agreed]))
    return made._replace(values=made.values[: len(labels)])


class ConvexLearner:
    """A linear model on one client's examples, in float64; gradients as in the simulator."""

    def __init__(
        self,
        federation: Federation,
        model: LinearModel,
        l2: float,
        *,
        smoothness: str = "tight",
        gradient: Gradient | None = None,
        start: str = "ones",
        classes: tuple[str | float, ...] | None = None,
        draws: Draws | None = None,
    ) -> None:
        self.estimate = own_gradient(gradient, federation)
        self._draws = draws or Secret()
        targets = targets_of(federation, model, classes)
        self.problem = Problem(federation, model, l2, smoothness, targets)
        self._start = start_point(start, self.problem)

    @property
    def examples(self) -> int:
        return int(self.problem.federation.train.counts[0])

    @cached_property
    def fingerprint(self) -> str:
        train, problem = self.problem.federation.train, self.problem
        values = problem.targets.values[: len(train.labels)]
        A = train.features
        parts = (A,) if isinstance(A, np.ndarray) else (A.data, A.indices, A.indptr)
        return digest_of(problem.model.name, repr(problem.l2), *parts, values)

    @cached_property
    @in_float64
    def scales(self) -> Scales:
        constants, nowhere = self.problem.constants, np.zeros((1, *self.problem.shape))
        # C_i depends on the optimum, which no node knows; A_i does not depend on the point
        A, _ = self.estimate.expected_smoothness(self.problem, constants, lambda: nowhere)
        advice = theory.advise(np.ones(1), constants, self.estimate, A, np.zeros(1))
        gamma, mu, L = advice.gamma[0], constants.mu[0], constants.L[0]
        return Scales(float(gamma), float(gamma * mu), float(gamma * L))

    def start(self) -> Vector:
        return Vector((self._start,))

    @in_float64
    def gradient(self, point: Vector, place: Place) -> Vector:
        if isinstance(self.estimate, Exact):
            return self.full_gradient(point)
        if isinstance(self.estimate, Private):
            return self.private_gradients([point], place)[0]
        losses = self.problem.losses
        rows = _rows(self.estimate.size, losses, place)
        return Vector((np.asarray(_batch_gradient(losses, point.tree[0], rows)),))

    @in_float64
    def private_gradients(self, points: Sequence[Vector], place: Place) -> list[Vector]:
        """At all points on one sample, with noise of its own for each."""
        assert isinstance(self.estimate, Private)
        size, losses, taken = self.estimate.size, self.problem.losses, None
        if size is not None:
            drawn = self._draws.uniforms(place, self.examples)
            taken = (drawn < size / self.examples)[:, None]
        at = tuple(Vector(point.tree[0][None, None]) for point in points)
        noise = [
            self._draws.normals(place, number, point.tree[0].shape)[None, None]
            for number, point in enumerate(points)
        ]
        found = _private_gradients(self.estimate, losses, at, taken, noise)
        return [Vector((np.asarray(one.tree)[0, 0],)) for one in found]

    @in_float64
    def full_gradient(self, point: Vector) -> Vector:
        slope = _value_and_gradient(self.problem.losses, point.tree[0])[1]
        return Vector((np.asarray(slope),))

    @in_float64
    def loss(self, point: Vector) -> float:
        return float(_value_and_gradient(self.problem.losses, point.tree[0])[0])

    @in_float64
    def score(self, point: Vector) -> float:
        held_out = self.problem.held_out.get("test", self.problem.losses)
        return float(_score(held_out, point.tree[0]))

    def named(self, point: Vector) -> dict[str, NDArray[Any]]:
        return {WHOLE: point.tree[0]}

    def optimum(self) -> Vector:
        x_star, _ = exact_optima(self.problem)
        return Vector((x_star[0],))

    def rule(self, word: str) -> str:
        return rule_for(word, self.problem).name

    def judged(self, word: str, x_star: Vector, x: Vector, clients: int) -> Judgement:
        rule = rule_for(word, self.problem, clients)
        found = rule.evidence(self.problem, x_star.tree[0][None], x.tree[0])
        return Judgement(rule, *weighed(self.problem, rule, found))

    @in_float64
    def test_loss(self, point: Vector) -> float:
        test = self.problem.held_out.get("test")
        return np.nan if test is None else float(_mean_loss(test, point.tree[0]))


def _rows(size: int, losses: Losses, place: Place) -> NDArray[Any]:
    """The rows that the simulator would draw for this client at this step."""
    drawn = jax.random.randint(client_key(place), (size,), 0, losses.counts[0], dtype=np.int32)
    return np.asarray(losses.first[0] + drawn)


@jax.jit
def _value_and_gradient(losses: Losses, x: Array) -> tuple[Array, Array]:
    values, gradients = losses.values_and_gradients(x[None, None])
    return values[0, 0], gradients[0, 0]


@jax.jit
def _batch_gradient(losses: Losses, x: Array, rows: Array) -> Array:
    return losses.batch_gradients(x[None, None], rows[None, None])[0, 0]


@jax.jit
def _private_gradients(
    estimate: Private, losses: Losses, at: Points, taken: Array | None, noise: list[Array]
) -> Points:
    return estimate.drawn(losses, at, taken, noise)


@jax.jit
def _mean_loss(losses: Losses, x: Array) -> Array:
    return losses.mean_losses(x[None, None])[0, 0]


@jax.jit
def _score(losses: Losses, x: Array) -> Array:
    return losses.scores(x[None, None])[0, 0]
