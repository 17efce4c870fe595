"""The clients' objective over the rounds, and when it has blown up."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

ALL = "all clients of a round"  # in place of a client, where only their mean is known


@dataclass
class Losses:
    """f_i(x~_i) as reported by clients; a client's latest value counts until its next report."""

    first: dict[str, float] = field(default_factory=dict)
    latest: dict[str, float] = field(default_factory=dict)
    best: int = 0  # the round whose model had the lowest objective
    lowest: float | None = None  # that objective

    @property
    def start(self) -> float:
        """The mean of the clients' first reports."""
        return sum(self.first.values()) / len(self.first)

    @property
    def objective(self) -> float:
        """The mean of the clients' latest reports."""
        return sum(self.latest.values()) / len(self.latest)

    def take(self, round: int, told: Mapping[str, float]) -> None:
        """Losses of the model that a round begins with; NaN if not finite or not asked for."""
        known = {name: loss for name, loss in told.items() if math.isfinite(loss)}
        self.first = {**known, **self.first}
        self.latest |= known
        if known and (self.lowest is None or self.objective <= self.lowest):
            self.best, self.lowest = round, self.objective

    def blown_up(self, told: Mapping[str, float], factor: float) -> str | None:
        """How the objective blew up, as a clause; None if it did not or the factor is 0.

        Call `take` first.
        """
        if not factor or not self.first:
            return None
        if told and not any(map(math.isfinite, told.values())):
            return "no client has a finite loss any more"
        limit = self.start + (factor - 1) * abs(self.start)
        if not self.objective > limit > 0:
            return None
        grown = f"the clients' mean objective is {self.objective:.4g}, up from {self.start:.4g} at "
        grown += "the start"
        if ALL in self.latest:
            return grown
        worst = max(self.latest, key=lambda name: self.latest[name])
        return f"{grown}, and is largest at client {worst} ({self.latest[worst]:.4g})"

    def leave(self, client: str) -> None:
        """Remove a client from the objective; the best model so far is then unknown."""
        self.first.pop(client, None)
        self.latest.pop(client, None)
        self.lowest = None

    def plain(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return asdict(self)
