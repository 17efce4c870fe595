"""Privacy between machines: what a client lets out, and what server and client count of it.

A client adds noise from the operating system's random source, which nobody can draw again: a seed
that the server knows would let it subtract the noise. What it sends is stored before it is sent,
so that a repeated message gets the same reply and never a second noise.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from scafflix.core import durable, specs
from scafflix.core.arguments import real_number
from scafflix.core.durable import Hook
from scafflix.core.errors import ScafflixError
from scafflix.federate.draws import secret_normals
from scafflix.gradients.private import IN_JAX_ALONE, Private
from scafflix.methods import METHODS, parameters
from scafflix.methods.disclosure import Chosen, check_examples, points_asked, what_travels
from scafflix.methods.method import Client, Local, Method
from scafflix.methods.private import clipped
from scafflix.models import is_own
from scafflix.personalization.alphas import rule_in
from scafflix.personalization.rules.choosing import COMMON
from scafflix.privacy import (
    Released,
    epsilon_of_gaussians,
    epsilon_of_releases,
    least_noise,
)
from scafflix.privacy.terms import DELTA
from scafflix.runs.assembly import estimate_of, rounds_of
from scafflix.runs.config import RunConfig


class Terms(NamedTuple):
    """What clients and server agree on."""

    clip: float
    noise: float  # multiplier: of the sum over the fewest replies that close a round, or examples
    delta: float
    budget: float | None = None
    unit: str = "client"
    batch: int | None = None  # for examples: how many a gradient takes on average; None: all
    noise_at: str = "client"  # who adds the noise

    @property
    def at_server(self) -> bool:
        """Whether clients clip only, and the server adds the noise to the mean."""
        return self.noise_at == "server"

    def share(self, examples: int) -> float:
        """With what probability a contribution is in a noisy sum, for a client with so many."""
        return 1.0 if self.batch is None else self.batch / examples

    def exceeded_by(self, epsilon: float) -> bool:
        """Whether this is beyond the budget."""
        return self.budget is not None and epsilon > self.budget * (1 + 1e-9)


def terms_of(config: RunConfig) -> Terms | None:
    """The privacy of a run; the noise that the budget asks for if none is given."""
    if config.privacy == "none":
        return None
    assert config.clip is not None
    assert config.delta is not None
    delta = config.delta
    noise = config.noise_multiplier
    if config.privacy == "example":
        estimate = estimate_of(config)
        assert isinstance(estimate, Private)
        assert noise is not None
        return Terms(config.clip, noise, delta, config.budget, "example", estimate.size)
    if noise is None:
        budget = config.budget
        assert budget is not None

        def epsilon(noise: float) -> float:
            return epsilon_of_gaussians(rounds_of(config) / noise**2, delta)

        noise = least_noise(epsilon, budget)
    return Terms(config.clip, noise, delta, config.budget, noise_at=config.noise_at)


def own_terms(agreed: Terms | None, budget: object) -> Terms | None:
    """What a client holds itself to: the terms of the run, and a budget of its own, which counts
    at a delta of 1e-5 unless the run's is less."""
    if budget is None:
        return agreed
    most = real_number("budget", budget, above=True)
    if agreed is None:
        raise ScafflixError(
            f"The node's own budget is {most:g}, but the run adds no noise; it takes part only in "
            "runs with privacy client or example."
        )
    if agreed.at_server:
        raise ScafflixError(
            f"The node's own budget is {most:g}, but the run leaves the noise to the server, which "
            "no node can check; it takes part only in runs with noise_at client."
        )
    most = most if agreed.budget is None else min(most, agreed.budget)
    return agreed._replace(budget=most, delta=min(DELTA, agreed.delta))


def check_terms_of(config: RunConfig) -> None:
    """Refuse, in a private federation, what would tell more than is counted."""
    if config.privacy == "none":
        return
    if config.privacy == "example" and is_own(config.model):
        raise ScafflixError(IN_JAX_ALONE)
    if config.privacy == "example" and config.noise_multiplier is None:
        raise ScafflixError(
            "noise_multiplier is missing: which noise a budget asks for depends on how many "
            "examples each client has; with privacy example give noise_multiplier, and a budget "
            "to end the run by."
        )
    # a node checks this too, and loads no file that a server names
    method = METHODS.get(specs.read(config.method).name)
    steps_locally = method is None or "p" in parameters(method)
    if isinstance(config.stepsize, str) or (steps_locally and isinstance(config.p, str)):
        wanted = "stepsize and p as numbers" if steps_locally else "stepsize as a number"
        raise ScafflixError(
            "Stepsizes by theory are made of the clients' data, and would be told; with privacy "
            f"give {wanted} that all agree on."
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


class Guard:
    """A client's own side: it clips, adds noise and counts, whatever the server asks for.

    Where the server is to add the noise, it counts as if the server did.
    With privacy for examples its learner's gradients have the noise, and what it reaches by them
    may be sent as it is.
    """

    def __init__(self, terms: Terms) -> None:
        self.terms = terms
        self._chosen: dict[Any, Chosen] = {}  # by the method
        self._points: dict[Any, int] = {}  # gradients of a step, by the method

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
        asked = _kind(method, names)
        if self.terms.unit == "example":
            if asked not in self._points:
                check_examples(method, names)
                self._points[asked] = points_asked(method, names)
            return local
        if asked not in self._chosen:
            self._chosen[asked] = what_travels(method, names, self.terms.noise_at)
        chosen = self._chosen[asked]
        origins = chosen.of(method.begin(client, state, sent))
        near = [np.asarray(a) for a in clipped(self.terms.clip, chosen.of(local), origins)]
        if self.terms.at_server:
            return chosen.put(local, near)
        part = self.terms.clip * self.terms.noise / np.sqrt(least)
        made = [(one + part * secret_normals(one.shape)).astype(one.dtype) for one in near]
        return chosen.put(local, made)

    def sums(self, method: Method, names: Sequence[str], steps: int) -> int:
        """How many noisy sums of contributions a released upload is made of."""
        return 1 if self.terms.unit == "client" else steps * self._points[_kind(method, names)]

    def count(self, path: Path, sums: int, examples: int, hook: Hook = durable.quiet) -> None:
        """One more upload, on disk before it can be sent; refuse it beyond the budget. What other
        runs of this client's folder have let out counts too."""
        terms, found = self.terms, durable.read(path)
        unit = terms.unit if found is None else found[0]["unit"]
        if unit != terms.unit:
            raise ScafflixError(
                f"this client has sent uploads with privacy {unit}, to which those with privacy "
                f"{terms.unit} cannot be added; it sends no more of another kind."
            )
        before = [] if found is None else found[0]["sums"]
        made = Counter({(share, noise): number for share, noise, number in before})
        made[terms.share(examples), terms.noise] += sums
        released = tuple(Released(*kind, number) for kind, number in sorted(made.items()))
        epsilon = epsilon_of_releases(released, terms.delta)
        uploads = 0 if found is None else int(found[0]["uploads"])
        if terms.exceeded_by(epsilon):
            raise ScafflixError(
                f"one more upload takes epsilon to {epsilon:.3g}, beyond the budget "
                f"{terms.budget:g}; this client has sent {uploads} and sends no more."
            )
        facts = {"unit": unit, "uploads": uploads + 1, "sums": [list(one) for one in released]}
        durable.write(path, facts, (), hook)


def _kind(method: Method, names: Sequence[str]) -> tuple[str, str, tuple[str, ...]]:
    """What of a method its messages depend on."""
    return method.name, str(method.settings), tuple(names)
