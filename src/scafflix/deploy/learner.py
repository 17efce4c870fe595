"""What a node brings: its functions f_i. Everything else is the method's and the protocol's.

A user's own backend (PyTorch, say) is one class with these names; points are `Vector`s over
a tuple of NumPy arrays, in an order and with shapes that the learner chooses and all nodes share.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import NDArray

from scafflix import theory
from scafflix.cohorts.digest import digest_of
from scafflix.data.federation import Federation
from scafflix.engine import streams
from scafflix.engine.streams import Stream
from scafflix.errors import ScafflixError
from scafflix.gradients import Exact, Gradient, Minibatch, check_batch
from scafflix.models.linear import LinearModel, Targets
from scafflix.personalize import local_optima
from scafflix.problem import Losses, Problem
from scafflix.vector import Vector


class Place(NamedTuple):
    """Which gradient is asked for: all that a random stream may depend on."""

    seed: int
    round: int
    step: int  # within the round
    iteration: int  # over all rounds
    number: int  # of the client
    clients: int


class Scales(NamedTuple):
    """The stepsize that theory advises on f_i, and the constants in its unit; 0: unknown."""

    gamma: float = 0.0
    gamma_mu: float = 0.0
    gamma_L: float = 0.0  # noqa: N815


class Learner(Protocol):
    """f_i on one node."""

    @property
    def examples(self) -> int:
        """The number of training examples."""

    @property
    def scales(self) -> Scales:
        """What theory knows of f_i."""

    @property
    def fingerprint(self) -> str:
        """A digest of what x_i* depends on: it is found anew when this changes. Never sent."""

    def start(self) -> Vector:
        """The point from which a federation starts: from a seed, the same on every node."""

    def gradient(self, point: Vector, place: Place) -> Vector:
        """An estimate of grad f_i(point), the same for the same place."""

    def loss(self, point: Vector) -> float:
        """f_i(point)."""

    def score(self, point: Vector) -> float:
        """How good a model is, on held-out examples if there are any; NaN if nobody knows."""

    def optimum(self) -> Vector:
        """x_i*, an optimum of f_i."""


def one_client(federation: Federation) -> None:
    """Refuse data that are not those of one client."""
    if len(federation.clients) != 1:
        raise ScafflixError(
            f"{federation.name} holds {len(federation.clients)} clients; a node has one. Give it "
            "a file of its own, or clients = 1."
        )


def targets_of(
    federation: Federation, model: LinearModel, classes: tuple[str | float, ...] | None
) -> Targets | None:
    """The labels' meaning where it is agreed on beforehand: a node may lack a class."""
    if classes is None:
        return None
    labels = np.concatenate([part.labels for part in federation.parts.values()])
    agreed = np.array(classes).astype(labels.dtype)
    unknown = np.setdiff1d(labels, agreed)
    if len(unknown):
        raise ScafflixError(f"A label is {unknown[0]}, which is not among the classes {classes}.")
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
    ) -> None:
        one_client(federation)
        self._gradient = gradient or Exact()
        if not isinstance(self._gradient, Exact | Minibatch):
            raise ScafflixError("A node takes exact or minibatch gradients, without added noise.")
        check_batch(self._gradient, federation)
        if start not in ("ones", "zeros"):
            raise ScafflixError(f"start is {start!r}; it must be ones or zeros.")
        targets = targets_of(federation, model, classes)
        self.problem = Problem(federation, model, l2, smoothness, targets)
        self._start = np.full(self.problem.shape, 1.0 if start == "ones" else 0.0)

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
    def scales(self) -> Scales:
        constants, nowhere = self.problem.constants, jnp.zeros((1, *self.problem.shape))
        # C_i belongs to the optimum, which no node knows; A_i does not depend on the point
        A, _ = self._gradient.expected_smoothness(self.problem, constants, lambda: nowhere)
        advice = theory.advise(np.ones(1), constants, self._gradient, A, np.zeros(1))
        gamma, mu, L = advice.gamma[0], constants.mu[0], constants.L[0]
        return Scales(float(gamma), float(gamma * mu), float(gamma * L))

    def start(self) -> Vector:
        return Vector((self._start,))

    def gradient(self, point: Vector, place: Place) -> Vector:
        (x,) = point.tree
        losses = self.problem.losses
        if isinstance(self._gradient, Minibatch):
            rows = _rows(self._gradient.size, losses, place)
            return Vector((np.asarray(_batch_gradient(losses, x, rows)),))
        return Vector((np.asarray(_value_and_gradient(losses, x)[1]),))

    def loss(self, point: Vector) -> float:
        return float(_value_and_gradient(self.problem.losses, point.tree[0])[0])

    def score(self, point: Vector) -> float:
        held_out = self.problem.held_out.get("test", self.problem.losses)
        return float(_score(held_out, point.tree[0]))

    def optimum(self) -> Vector:
        x_star, _ = local_optima(self.problem)
        return Vector((np.asarray(x_star)[0],))


def _rows(size: int, losses: Losses, place: Place) -> NDArray[Any]:
    """The rows that the simulator, which draws for all clients at once, draws for this one."""
    key = jax.random.fold_in(streams.key(place.seed, Stream.GRADIENT), place.iteration)
    drawn = jax.random.randint(key, (place.clients, size), 0, losses.counts[0])
    return np.asarray(losses.first[0] + drawn[place.number])


@jax.jit
def _value_and_gradient(losses: Losses, x: Array) -> tuple[Array, Array]:
    values, gradients = losses.values_and_gradients(x[None, None])
    return values[0, 0], gradients[0, 0]


@jax.jit
def _batch_gradient(losses: Losses, x: Array, rows: Array) -> Array:
    return losses.batch_gradients(x[None, None], rows[None, None])[0, 0]


@jax.jit
def _score(losses: Losses, x: Array) -> Array:
    return losses.scores(x[None, None])[0, 0]
