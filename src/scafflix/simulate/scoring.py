"""What every kind of model scores at every client, once a run is over."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import numpy as np
from jax import Array
from numpy.typing import NDArray

from scafflix.core.precision import in_float64
from scafflix.core.store import Store
from scafflix.models.calibration import forecasts
from scafflix.models.network import Params
from scafflix.personalization.personalize import Personalization
from scafflix.personalization.rules.choosing import Choice
from scafflix.personalization.rules.validation import mixed_by
from scafflix.problems.evaluation import ALONE, Examined, Scores, examine, over_examples
from scafflix.problems.losses import Losses
from scafflix.problems.problem import Problem
from scafflix.simulate.taking_part import PARTS, Look

KINDS = ("local", "global", "personal")
Columns = dict[str, NDArray[Any]]


@in_float64
def linear_scores(problem: Problem, models: dict[str, Any], part: str) -> Columns:
    """What every kind of model scores at every client."""
    looked_at = {"train": problem.losses, **problem.held_out}
    if part != "test":
        looked_at.pop("test", None)
    points = _points(models)
    table: Columns = {}
    for name, losses in looked_at.items():
        scores, means = map(np.asarray, _scores(losses, points))
        table |= {f"{name}_{k}": v for k, v in zip(KINDS, scores, strict=True)}
        table |= {f"{name}_loss_{k}": v for k, v in zip(KINDS, means, strict=True)}
    return table


@in_float64
def linear_look(problem: Problem, models: dict[str, Any], part: str) -> Look | None:
    """What every kind of model makes of the clients' held-out examples; None where none are."""
    seen = [name for name in PARTS if name in problem.held_out and part in ("test", name)]
    if not seen:
        return None
    losses = problem.held_out[seen[0]]
    (real,) = np.nonzero(np.asarray(losses.weight))
    loss, score, bins = map(np.asarray, _examined(losses, _points(models)))
    entries = np.ones(len(real))
    kinds = {
        kind: Examined(loss[k, real], score[k, real], entries, bins[k])
        for k, kind in enumerate(KINDS)
    }
    owners = np.asarray(losses.owner)[real]
    return Look(seen[0], owners, kinds, forecasts(problem.class_names))


def _points(models: dict[str, Any]) -> NDArray[Any]:
    """A model of each kind for every client, `[kinds, clients, *shape]`."""
    return np.stack([np.broadcast_to(models[kind], models["local"].shape) for kind in KINDS])


@jax.jit
def _examined(losses: Losses, points: Array) -> tuple[Array, Array, Array]:
    return losses.examined(points)


@jax.jit
def _scores(losses: Losses, points: Array) -> tuple[Array, Array]:
    return losses.scores(points), losses.mean_losses(points)


def network_look(
    problem: Problem,
    person: Personalization,
    x: Params,
    examined: Mapping[str, Examined],
    chosen: Choice | None,
    part: str,
) -> Look:
    """The local models of a network beside the global and the personal ones."""
    kinds = dict(examined)
    if isinstance(person.x_star, Store):
        # the same for every run with these local optima
        known: dict[str, Examined] = person.x_star.known
        if part not in known:
            known[part] = examine(problem, part, x, ALONE, person.x_star)
        kinds = {"local": known[part], **kinds}
        if chosen is not None:
            home = mixed_by(chosen.alpha)
            kinds["personal"] = examine(problem, part, x, home, person.x_star)
    return Look(part, problem.parts[part].owners, kinds, forecasts(problem.class_names))


def distribution(scores: Scores) -> dict[str, float]:
    """How the clients fare, in numbers."""
    known = scores.score[np.isfinite(scores.score)]
    return {
        "examples": over_examples(scores.score, scores),
        "clients": float(known.mean()),
        "std": float(known.std()),
        "p10": float(np.percentile(known, 10)),
        "worst": float(known.min()),
        "loss": over_examples(scores.loss, scores),
    }
