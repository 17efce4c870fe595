"""What a node provides: its function f_i. The method and the protocol do the rest.

Your own backend (such as PyTorch) is one class with these names. Points are `Vector`s over a tuple
of NumPy arrays; the learner chooses their order and shapes, which must be the same on all nodes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable

from jax import Array

from scafflix.core import streams
from scafflix.core.errors import ScafflixError
from scafflix.core.streams import Stream
from scafflix.core.vector import Vector
from scafflix.data.federation import Federation
from scafflix.gradients import Exact, Gradient, Minibatch, Private, Reduced, check_batch


class Place(NamedTuple):
    """Which gradient is asked for; a random stream may depend on nothing else."""

    seed: int
    round: int
    step: int  # within the round
    iteration: int  # over all rounds
    number: int  # of the client
    clients: int


def client_key(place: Place) -> Array:
    """The random key of a client at one step, as in the simulator."""
    key = streams.key(place.seed, Stream.GRADIENT)
    return streams.at_step(key, place.round, place.number, place.step)


class Scales(NamedTuple):
    """The stepsize that theory advises for f_i, and the constants times it; 0 if unknown."""

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
        """What theory knows about f_i."""

    @property
    def fingerprint(self) -> str:
        """A digest of what x_i* depends on: x_i* is recomputed when it changes. Never sent."""

    def start(self) -> Vector:
        """The starting point of the federation: made from a seed, the same on every node."""

    def gradient(self, point: Vector, place: Place) -> Vector:
        """An estimate of grad f_i(point), the same for the same place."""

    def loss(self, point: Vector) -> float:
        """f_i(point)."""

    def score(self, point: Vector) -> float:
        """How good a model is, on held-out examples if there are any; NaN if unknown."""

    def optimum(self) -> Vector:
        """x_i*, an optimum of f_i."""


@runtime_checkable
class Tuner(Protocol):
    """A learner whose x_i* may come after the rounds, from the model that these gave."""

    def tuned(self, x: Vector, number: int) -> Vector:
        """x_i*, from x, with the random stream of the client that has this number."""


class Noisy(Protocol):
    """A learner whose gradients are private for every example."""

    estimate: Private

    def private_gradients(self, points: Sequence[Vector], place: Place) -> list[Vector]:
        """At all points on one sample, with noise of its own for each."""


class Remembering(Protocol):
    """A learner whose client reduces the variance of its minibatches by what it remembers."""

    estimate: Reduced

    def full_gradient(self, point: Vector) -> Vector:
        """grad f_i(point)."""


def reduction_of(learner: Learner) -> Remembering | None:
    """The learner, if its client is to reduce the variance of minibatches."""
    found: Any = learner
    return found if isinstance(getattr(found, "estimate", None), Reduced) else None


def privacy_of(learner: Learner) -> Noisy | None:
    """The learner, if its gradients are private for every example."""
    found: Any = learner
    return found if isinstance(getattr(found, "estimate", None), Private) else None


def own_gradient(
    gradient: Gradient | None, federation: Federation
) -> Exact | Minibatch | Private | Reduced:
    """How the one client of these data estimates gradients; Exact unless told otherwise."""
    if len(federation.clients) != 1:
        raise ScafflixError(
            f"{federation.name} holds {len(federation.clients)} clients, but a node is one client; "
            "give the node its own file, or set clients = 1."
        )
    estimate = gradient or Exact()
    if not isinstance(estimate, Exact | Minibatch | Private | Reduced):
        raise ScafflixError("A node must use exact or minibatch gradients; leave out added noise.")
    check_batch(estimate, federation)
    return estimate
