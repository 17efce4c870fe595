"""How far an upload is from the model it started from, and how far is too far.

With stepsizes that theory covers, clients move furthest in the first rounds. So the distance of an
upload is compared with the largest usual distance so far: the median over the newest averaged
uploads of all clients, at its maximum over the rounds. This also works for a cohort of one, does
not refuse a client that returns to a run that has converged, and cannot be stretched by a minority
of the clients.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from statistics import median_high
from typing import Any

import numpy as np

from scafflix.core.durable import Arrays
from scafflix.federate.messages import Fault

WINDOW = 20  # uploads whose median is taken
FEWEST = 3  # uploads needed to know what is usual


@dataclass
class Yardstick:
    """The usual distance; more than `factor` times that is too far, unless `factor` is 0."""

    factor: float
    recent: list[float] = field(default_factory=list)  # of the newest uploads in averages
    usual: float = 0.0  # the largest median of these so far
    longest: int = 0  # K of the longest round so far

    def too_far(
        self, distances: Mapping[str, float], steps: int, length: float
    ) -> dict[str, Fault]:
        """The clients of a round whose uploads must not be averaged; `length` is ||x_r||.

        A distance up to ||x_r|| is never refused. A round that is longer than any before it may go
        further in proportion.
        """
        if not self.factor:
            return {}
        known = self._with(distances.values())
        usual = max(self.usual, median_high(known)) if len(known) >= FEWEST else np.inf
        stretch = max(1.0, steps / self.longest) if self.longest else 1.0
        limit = max(self.factor * usual * stretch, length)
        return {
            name: Fault(
                "far",
                f"its upload is {distance:.4g} away from the model; at most {limit:.4g} is allowed "
                f"({usual:.4g} was usual when clients moved most).",
            )
            for name, distance in distances.items()
            if not distance <= limit or np.isinf(distance)
        }

    def take(self, distances: Sequence[float], steps: int) -> None:
        """Take in the distances of the averaged uploads of a round with this many steps."""
        known = self._with(distances)
        self.recent = known[-max(WINDOW, len(distances)) :]
        if len(self.recent) >= FEWEST:
            self.usual = max(self.usual, median_high(self.recent))
        self.longest = max(self.longest, steps)

    def _with(self, distances: Any) -> list[float]:
        """The recent distances and these; clients that did not move do not count."""
        return [*self.recent, *(distance for distance in distances if 0 < distance < np.inf)]

    def plain(self) -> dict[str, Any]:
        """Plain values for JSON, without the factor, which the operator sets."""
        return {name: value for name, value in asdict(self).items() if name != "factor"}


def distance(point: Arrays, other: Arrays | None = None) -> float:
    """||point - other||, or ||point||; infinite where squares overflow."""
    total = 0.0
    with np.errstate(over="ignore"):
        for number, leaf in enumerate(point):
            off = np.asarray(leaf, float) - (0 if other is None else np.asarray(other[number]))
            total += float(np.vdot(off, off))
        return float(np.sqrt(total))
