"""What privacy for every example costs: accuracy against epsilon.

Scafflix trains the global model at alpha = 1 with private gradients. What a client then mixes from
it and its own model is made at home and spends nothing.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from scafflix.core.errors import ScafflixError, ScafflixWarning
from scafflix.core.progress import Progress
from scafflix.core.types import Floats
from scafflix.gradients import Exact, private_gradient
from scafflix.methods import Method, scafflix
from scafflix.personalization.mixing import mixture
from scafflix.personalization.personalize import Personalization, personalize
from scafflix.personalization.rules.choosing import choose
from scafflix.privacy import Limit
from scafflix.problems.problem import Problem
from scafflix.runs.assembly import build_problem
from scafflix.runs.config import RunConfig, build
from scafflix.runs.runner import figure_settings
from scafflix.runs.studies import chosen_panels, kept, scored, whole_numbers
from scafflix.simulate.accounting import noise_within
from scafflix.simulate.planning import plan
from scafflix.simulate.recording import Run
from scafflix.simulate.run import sweep

RECIPE = 1  # to be raised when the same settings give other numbers
KINDS = ("global", "half and half", "alpha auto", "alone")
OF_RUNS = ("data", "clients", "split", "scale", "intercept", "test", "model", "l2", "rounds", "p")
KNOWN = ("divisions", "seeds", "rounds", "panels")


class Published(NamedTuple):
    """A point of somebody else's curve; epsilon 0 is without noise."""

    epsilon: float
    accuracy: float
    delta: float | None = None


class Panel(NamedTuple):
    """One data set."""

    title: str
    delta: float
    epsilons: list[float]  # the last is infinite: no noise, no clip
    scores: Floats  # [epsilons, kinds, divisions, seeds], means over clients
    gradients: float  # that a client computes in a run, on average
    published: list[Published]


def study(
    changes: Mapping[str, str] | None = None, progress: Progress | None = None
) -> list[Panel]:
    """All panels; `changes` to some keys are for trying out."""
    changes = dict(changes or {})
    for name in changes:
        if name not in KNOWN:
            raise ScafflixError(
                f"There is no key {name!r} of this study; it has {', '.join(KNOWN)}."
            )
    settings = figure_settings("privacy")
    panels = chosen_panels(settings.pop("panels"), changes.pop("panels", None))
    numbers = {name: whole_numbers(name, word)[0] for name, word in changes.items()}
    return [_panel({**settings, **panel, **numbers}, progress) for panel in panels]


def _panel(settings: Mapping[str, Any], progress: Progress | None) -> Panel:
    found = []
    for division in range(settings["divisions"]):
        if progress is not None:
            words = f"{settings['title']}, division {division + 1}"
            progress(division, settings["divisions"], words)
        asked = {key: settings[key] for key in OF_RUNS if key in settings}
        asked |= {"data_seed": division, "method": "scafflix", "alpha": 1.0}
        problem = build_problem(build(RunConfig, asked))
        shared = {name: value for name, value in settings.items() if name != "divisions"}
        facts = [problem.functions, shared, division]
        found.append(kept("privacy", RECIPE, facts, partial(_division, settings, problem)))
    scores = np.array([one["scores"] for one in found])  # [divisions, epsilons, seeds, kinds]
    return Panel(
        settings["title"],
        settings["delta"],
        [*settings["epsilons"], np.inf],
        np.moveaxis(scores, (0, 3), (2, 1)),
        float(np.mean([one["gradients"] for one in found])),
        [Published(**one) for one in settings.get("published", [])],
    )


def _division(settings: Mapping[str, Any], problem: Problem) -> dict[str, Any]:
    """Every epsilon with every seed, all in one sweep."""
    person, rounds = personalize(problem, 1.0), settings["rounds"]
    seeds, epsilons = range(settings["seeds"]), settings["epsilons"]
    members = [
        _member(settings, problem, person, epsilon, seed) for epsilon in epsilons for seed in seeds
    ]
    delta = settings["delta"]
    private = sweep(problem, members, rounds=rounds, start="zeros", scores=False, delta=delta)
    plain = Run(person, scafflix(plan(problem, person, gradient=Exact()), p=settings["p"]))
    exact = sweep(
        problem, [plain._replace(seed=seed) for seed in seeds], rounds=rounds, start="zeros",
        scores=False,
    )  # fmt: skip
    scores = [_scores(problem, person, one.models["global"]) for one in (*private, *exact)]
    return {
        "scores": np.reshape(scores, (len(epsilons) + 1, len(seeds), len(KINDS))).tolist(),
        "gradients": float(np.mean([one.summary["iterations"] for one in private])),
    }


def _member(
    settings: Mapping[str, Any],
    problem: Problem,
    person: Personalization,
    epsilon: float,
    seed: int,
) -> Run:
    """With the noise that such an epsilon asks for."""

    def method(noise: float) -> Method:
        gradient = private_gradient(settings["clip"], noise)
        return scafflix(plan(problem, person, gradient=gradient), p=settings["p"])

    some, limit = Run(person, method(1.0), seed), Limit(settings["delta"], epsilon)
    noise = noise_within(problem, some, None, settings["rounds"], limit)
    return some._replace(method=method(noise))


def _scores(problem: Problem, person: Personalization, x: Floats) -> list[float]:
    """The mean over clients of each kind of model."""
    local = person.points
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ScafflixWarning)  # clients of one class are expected
        alpha = choose(problem, "auto", person.x_star, x).alpha
    half = mixture(np.full(problem.n, 0.5), x[None], local)
    own = mixture(alpha, x[None], local)
    _, scores = scored(problem, [x, np.asarray(half), np.asarray(own), local])
    return [float(one) for one in np.nanmean(scores, axis=1)]
