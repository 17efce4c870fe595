"""What the clients of a private federation have spent, as the server counts it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from scafflix.core import durable
from scafflix.federate.privacy import Terms
from scafflix.privacy import epsilon_of_batches, epsilon_of_gaussians


class Asked(NamedTuple):
    """A round, for those who count what it lets out."""

    steps: Mapping[str, int]  # local steps of each client that is asked
    least: int  # replies over which the noise of an update is shared out
    points: int  # gradients of a step


class Spending:
    """What the clients have spent, as the server counts it: updates by the averages that they were
    in, and gradients by what was asked for, since a reply that comes too late was sent too."""

    def __init__(
        self,
        folder: Path,
        terms: Terms | None,
        weights: Mapping[str, float],
        examples: Mapping[str, int],
    ) -> None:
        self.terms, self.weights, self.examples = terms, dict(weights), dict(examples)
        self._path = folder / f"privacy{durable.SUFFIX}"
        self._last: tuple[int, int] = (-1, -1)
        self._before: dict[str, float] = {}
        # sums of 1/z^2, or numbers of gradients
        self.spent: dict[str, float] = dict.fromkeys(weights, 0.0)
        found = durable.read(self._path)
        if found is not None:
            self._last = (found[0]["last"][0], found[0]["last"][1])
            self._before, self.spent = found[0]["before"], found[0]["spent"]

    def take(self, moment: tuple[int, int], names: Sequence[str], asked: Asked) -> None:
        """A round is closed with these clients; the same one again, after a crash, counts once."""
        if self.terms is None:
            return
        if moment != self._last:
            self._before = dict(self.spent)
        total = sum(self.weights[name] ** 2 for name in names)
        least = len(names) if self.terms.at_server else asked.least  # the server knows who is in
        spent = {
            name: self.weights[name] ** 2 * least / total / self.terms.noise**2 for name in names
        }
        spent = spent if self.terms.unit == "client" else _gradients(asked)
        self.spent = _added(self._before, spent)
        self._last = moment
        facts = {"last": list(moment), "before": self._before, "spent": self.spent}
        durable.write(self._path, facts, ())

    def _epsilon(self, spent: float, examples: int) -> float:
        assert self.terms is not None
        if self.terms.unit == "client":
            return epsilon_of_gaussians(spent, self.terms.delta)
        share = self.terms.share(examples)
        return epsilon_of_batches(share, self.terms.noise, round(spent), self.terms.delta)

    def epsilon(self, name: str) -> float:
        """Of one client, for whoever sees the models."""
        return self._epsilon(self.spent.get(name, 0.0), self.examples.get(name, 1))

    @property
    def worst(self) -> float | None:
        """What no client's exceeds; None without privacy."""
        return None if self.terms is None else self._worst(self.spent)

    def _worst(self, spent: Mapping[str, float]) -> float:
        """Of one who has spent most with fewest examples."""
        return self._epsilon(max(spent.values(), default=0.0), min(self.examples.values()))

    def exhausted(self, names: Sequence[str], replies: int, asked: Asked) -> bool:
        """Whether one more round of at least so many of these clients could take one of them beyond
        the budget."""
        if self.terms is None or self.terms.budget is None:
            return False
        lightest = min(self.weights[name] for name in names) ** 2
        least = asked.least
        if self.terms.at_server:  # the more light ones reply, the less noise a heavy one has
            least = replies = len(asked.steps)
        more = {}
        for name in names:
            own = self.weights[name] ** 2
            share = own * least / (own + (replies - 1) * lightest)
            more[name] = share / self.terms.noise**2
        if self.terms.unit == "example":
            more = _gradients(asked)
        return self.terms.exceeded_by(self._worst(_added(self.spent, more)))

    def facts(self, rounds: int, asked: int) -> dict[str, Any]:
        """What a record's summary says."""
        if self.terms is None:
            return {}
        clip, noise, delta, budget, unit, _, noise_at = self.terms
        made = {"unit": unit, "clip": clip, "noise_multiplier": noise, "noise_at": noise_at}
        made |= {"delta": delta, "epsilon": self.worst, "budget": budget, "rounds_asked": asked}
        return {"privacy": {**made, "ended_by_budget": rounds < asked}}

    def column(self, names: Sequence[str]) -> dict[str, NDArray[np.float64]]:
        """Epsilon in the table of clients."""
        if self.terms is None:
            return {}
        return {"epsilon": np.array([self.epsilon(name) for name in names])}


def _gradients(asked: Asked) -> dict[str, float]:
    """How many each client that is asked computes in a round."""
    return {name: float(asked.points * steps) for name, steps in asked.steps.items()}


def _added(spent: Mapping[str, float], more: Mapping[str, float]) -> dict[str, float]:
    return {**spent, **{name: spent.get(name, 0.0) + more[name] for name in more}}
