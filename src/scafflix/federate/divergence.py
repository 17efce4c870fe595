"""How the clients' objective goes, and when it has blown up."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass
class Losses:
    """f_i(x~_i) as clients reported it; the newest values stand for those not asked since."""

    first: dict[str, float] = field(default_factory=dict)
    latest: dict[str, float] = field(default_factory=dict)
    best: int = 0  # the round whose model had the lowest objective
    lowest: float | None = None  # that objective

    @property
    def start(self) -> float:
        """The objective over the clients that have reported, by their first reports."""
        return sum(self.first.values()) / len(self.first)

    @property
    def objective(self) -> float:
        """The same by their latest."""
        return sum(self.latest.values()) / len(self.latest)

    def take(self, round: int, told: Mapping[str, float]) -> None:
        """What clients say of the model that a round begins with; NaN: not finite, or not asked."""
        known = {name: loss for name, loss in told.items() if math.isfinite(loss)}
        self.first = {**known, **self.first}
        self.latest |= known
        if known and (self.lowest is None or self.objective <= self.lowest):
            self.best, self.lowest = round, self.objective

    def blown_up(self, told: Mapping[str, float], factor: float) -> str | None:
        """A clause that says so, after `take`; None while all is well, or if the factor is 0."""
        if not factor or not self.first:
            return None
        if told and not any(map(math.isfinite, told.values())):
            return "no client's loss is finite any more"
        limit = self.start + (factor - 1) * abs(self.start)
        if not self.objective > limit > 0:
            return None
        worst = max(self.latest, key=lambda name: self.latest[name])
        return (
            f"the clients' mean objective is {self.objective:.4g} after {self.start:.4g} at the "
            f"start, and largest at client {worst} ({self.latest[worst]:.4g})"
        )

    def leave(self, client: str) -> None:
        """A client is no part of the objective any more, so that no model is the best so far."""
        self.first.pop(client, None)
        self.latest.pop(client, None)
        self.lowest = None

    def plain(self) -> dict[str, Any]:
        """As JSON can hold it."""
        return asdict(self)
