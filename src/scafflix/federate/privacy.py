"""Privacy between machines: what a client lets out, and what server and client count of it.

A client adds noise from the operating system's random source, which nobody can draw again: a seed
that the server knows would let it subtract the noise. What it sends is stored before it is sent,
so that a repeated message gets the same reply and never a second noise.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from scafflix.core import durable
from scafflix.core.durable import Hook
from scafflix.core.errors import ScafflixError
from scafflix.methods.method import Client, Local, Method
from scafflix.methods.private import Chosen, clipped, what_travels
from scafflix.personalization.personalize import rule_in
from scafflix.personalization.rules.choosing import COMMON
from scafflix.privacy import epsilon_of_gaussians, least_noise
from scafflix.runs.config import RunConfig


class Terms(NamedTuple):
    """What clients and server agree on."""

    clip: float
    noise: float  # multiplier, of the sum over the fewest replies that close a round
    delta: float
    budget: float | None = None


def terms_of(config: RunConfig) -> Terms | None:
    """The privacy of a run; the noise that the budget asks for if none is given."""
    if config.privacy == "none":
        return None
    assert config.clip is not None
    assert config.delta is not None
    delta = config.delta
    noise = config.noise_multiplier
    if noise is None:
        budget = config.budget
        assert budget is not None

        def epsilon(noise: float) -> float:
            return epsilon_of_gaussians(config.rounds / noise**2, delta)

        noise = least_noise(epsilon, budget)
    return Terms(config.clip, noise, delta, config.budget)


def check_terms_of(config: RunConfig) -> None:
    """Refuse, in a private federation, what would tell more than is counted."""
    if config.privacy == "none":
        return
    if config.privacy == "example":
        raise ScafflixError(
            "privacy example is for simulations; in a federation it must be client, which protects "
            "every example of a client too."
        )
    if isinstance(config.stepsize, str) or isinstance(config.p, str):
        raise ScafflixError(
            "Stepsizes by theory are made of the clients' data, and would be told; with privacy "
            "give stepsize and p as numbers that all agree on."
        )
    rule = rule_in(config.alpha)
    if rule in (COMMON, "james-stein"):
        raise ScafflixError(
            f"alpha is {rule!r}, for which clients tell how good models are on their data; with "
            "privacy give a number, or auto, loo or validation, which a client decides alone."
        )
    if config.delta is None:
        raise ScafflixError(
            "delta is missing; in a federation all must know it: give one below one over the "
            "number of clients, such as 1e-5."
        )


def secure_normals(shape: tuple[int, ...]) -> NDArray[np.float64]:
    """Normal numbers from the operating system's random source."""
    count = int(np.prod(shape))
    bits = np.frombuffer(os.urandom(8 * count), np.uint64) >> np.uint64(11)
    return ndtri((bits.astype(np.float64) + 0.5) / 2.0**53).reshape(shape)


class Guard:
    """A client's own side: it clips, adds noise and counts, whatever the server asks for."""

    def __init__(self, terms: Terms, normals: Any = secure_normals) -> None:
        self.terms, self.normals = terms, normals
        self._chosen: dict[Any, Chosen] = {}  # by the method

    def release(
        self,
        method: Method,
        names: Sequence[str],
        least: int,
        at: tuple[Client, Any, Any],
        local: Local,
    ) -> Local:
        """What the client goes on with, and makes its message of; the noise of `least` such
        messages together is what the terms say."""
        client, state, sent = at
        asked = (method.name, str(method.settings), tuple(names))
        if asked not in self._chosen:
            self._chosen[asked] = what_travels(method, names)
        chosen = self._chosen[asked]
        origins = chosen.of(method.begin(client, state, sent))
        near = [np.asarray(a) for a in clipped(self.terms.clip, chosen.of(local), origins)]
        part = self.terms.clip * self.terms.noise / np.sqrt(least)
        made = [(one + part * self.normals(one.shape)).astype(one.dtype) for one in near]
        return chosen.put(local, made)

    def count(self, path: Path, hook: Hook = durable.quiet) -> None:
        """One more release, on disk before it can be sent; refuse it beyond the budget."""
        found = durable.read(path)
        releases = 1 + (0 if found is None else int(found[0]["releases"]))
        epsilon = epsilon_of_gaussians(releases / self.terms.noise**2, self.terms.delta)
        if self.terms.budget is not None and epsilon > self.terms.budget * (1 + 1e-9):
            raise ScafflixError(
                f"one more upload takes epsilon to {epsilon:.3g}, beyond the budget "
                f"{self.terms.budget:g}; this client has sent {releases - 1} and sends no more."
            )
        durable.write(path, {"releases": releases}, (), hook)


class Spending:
    """What the clients have spent, as the server counts it: by the averages that they were in."""

    def __init__(self, folder: Path, terms: Terms | None, weights: Mapping[str, float]) -> None:
        self.terms, self.weights = terms, dict(weights)
        self._path = folder / f"privacy{durable.SUFFIX}"
        self._last: tuple[int, int] = (-1, -1)
        self._before: dict[str, float] = {}
        self.spent: dict[str, float] = dict.fromkeys(weights, 0.0)  # sums of 1/z^2
        found = durable.read(self._path)
        if found is not None:
            self._last = (found[0]["last"][0], found[0]["last"][1])
            self._before, self.spent = found[0]["before"], found[0]["spent"]

    def take(self, moment: tuple[int, int], names: Sequence[str], least: int) -> None:
        """A round is closed with these clients; the same one again, after a crash, counts once."""
        if self.terms is None:
            return
        if moment != self._last:
            self._before = dict(self.spent)
        self.spent = dict(self._before)
        total = sum(self.weights[name] ** 2 for name in names)
        for name in names:
            share = self.weights[name] ** 2 * least / total
            self.spent[name] = self.spent.get(name, 0.0) + share / self.terms.noise**2
        self._last = moment
        facts = {"last": list(moment), "before": self._before, "spent": self.spent}
        durable.write(self._path, facts, ())

    def epsilon(self, name: str) -> float:
        """Of one client, for whoever sees the models."""
        assert self.terms is not None
        return epsilon_of_gaussians(self.spent.get(name, 0.0), self.terms.delta)

    @property
    def worst(self) -> float | None:
        """The largest of all; None without privacy."""
        if self.terms is None:
            return None
        return epsilon_of_gaussians(max(self.spent.values(), default=0.0), self.terms.delta)

    def exhausted(self, names: Sequence[str], least: int, replies: int) -> bool:
        """Whether one more round of at least so many of these clients could take one of them beyond
        the budget."""
        if self.terms is None or self.terms.budget is None:
            return False
        lightest = min(self.weights[name] for name in names) ** 2
        for name in names:
            own = self.weights[name] ** 2
            share = own * least / (own + (replies - 1) * lightest)
            after = self.spent.get(name, 0.0) + share / self.terms.noise**2
            if epsilon_of_gaussians(after, self.terms.delta) > self.terms.budget * (1 + 1e-9):
                return True
        return False

    def facts(self, rounds: int, asked: int) -> dict[str, Any]:
        """What a record's summary says."""
        if self.terms is None:
            return {}
        clip, noise, delta, budget = self.terms
        made = {"unit": "client", "clip": clip, "noise_multiplier": noise, "delta": delta}
        made |= {"epsilon": self.worst, "budget": budget, "rounds_asked": asked}
        return {"privacy": {**made, "ended_by_budget": rounds < asked}}

    def column(self, names: Sequence[str]) -> dict[str, NDArray[np.float64]]:
        """Epsilon in the table of clients."""
        if self.terms is None:
            return {}
        return {"epsilon": np.array([self.epsilon(name) for name in names])}
