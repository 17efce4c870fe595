"""Line 8 at a node: the gradients that its learner evaluates, with what the client remembers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax

from scafflix.core.vector import Vector
from scafflix.federate.learner import Learner, Place, client_key, privacy_of, reduction_of
from scafflix.federate.messages import Evaluate, Train
from scafflix.gradients import Query, Reference, either, points_of, renewal_draw
from scafflix.methods.method import Points


class Slopes:
    """How the gradients of one client are evaluated."""

    def __init__(self, learner: Learner) -> None:
        self.learner, self.reduction = learner, reduction_of(learner)
        self.private = privacy_of(learner)

    def at(self, message: Train | Evaluate, asked: Points | Query, step: int) -> Any:
        """Gradients at one or several points, on the same sample. At the end of a run it is one
        of the round that would come next."""
        place = Place(
            seed=message.seed,
            round=message.round,
            step=step,
            iteration=message.iteration + step,
            number=message.number,
            clients=message.clients,
        )

        def batch(point: Vector) -> Vector:
            return self.learner.gradient(point, place)

        if isinstance(asked, Query):
            return asked.answer(batch, self._full, renewal_draw(client_key(place)), either)
        points, form = points_of(asked)
        if self.private is not None:
            return jax.tree.unflatten(form, self.private.private_gradients(points, place))
        return jax.tree.unflatten(form, [batch(point) for point in points])

    def at_the_end(self, message: Evaluate) -> Callable[[Vector, int], Vector]:
        """The same for a client that tunes by itself; where gradients have a memory, it begins
        anew."""
        if self.reduction is None:
            return lambda point, step: self.at(message, point, step)
        q = self.reduction.estimate.renewal(self.learner.examples)
        memory: tuple[Reference, ...] = ()

        def gradient(point: Vector, step: int) -> Vector:
            nonlocal memory
            asked = Query(point, memory or (Reference.nothing(point),), q)
            answer: Query = self.at(message, asked, step)
            memory = answer.memory
            found: Vector = answer.points
            return found

        return gradient

    def _full(self, point: Vector, needed: bool) -> Vector:
        assert self.reduction is not None
        return self.reduction.full_gradient(point) if needed else point
