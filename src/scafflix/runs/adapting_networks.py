"""Newcomers to a network: x_i* from the stored global model, alpha_i by validation examples."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax
import numpy as np

from scafflix.core.errors import ScafflixError
from scafflix.core.store import Store
from scafflix.core.vector import names_of
from scafflix.data import Federation
from scafflix.models import LinearModel, is_network, is_own
from scafflix.models.calibration import forecasts
from scafflix.models.naming import model_by_name
from scafflix.personalization.personalize import Start, personalize
from scafflix.personalization.recipe import Recipe
from scafflix.personalization.rules import blending
from scafflix.personalization.rules.choosing import VALIDATION, choice, weighed
from scafflix.personalization.rules.validation import mixed_by
from scafflix.problems.evaluation import ALONE, examine
from scafflix.problems.problem import Problem
from scafflix.record import COUNTED, KINDS, Record
from scafflix.runs.adapting import Columns, Newcomers, codes_of, told_by
from scafflix.runs.assembly import usual_recipe
from scafflix.simulate.taken_home import mixtures, named
from scafflix.simulate.taking_part import Look


def network_newcomers(run: Record, federation: Federation, classes: tuple[str, ...]) -> Newcomers:
    """What every newcomer takes home."""
    problem = _problem(run, federation, classes)
    x = _global_model(run, problem)
    person = personalize(problem, "validation", start=Start(x), recipe=_recipe(run))
    stars = person.x_star
    assert isinstance(stars, Store)
    evidence, note = weighed(problem, VALIDATION, VALIDATION.evidence(problem, stars, x))
    made = blending.blended_with(evidence, told_by(run))
    chosen = choice("validation", evidence, made, note)
    own = stars.read(np.arange(problem.n))
    trees = {"global": x, "local": own, "personal": mixtures(made.alpha, x, own)}
    look, columns = None, dict(person.quality)
    if federation.test is not None and federation.test.counts.any():
        kinds = {
            "local": examine(problem, "test", x, ALONE, stars),
            "global": examine(problem, "test", x),
            "personal": examine(problem, "test", x, mixed_by(made.alpha), stars),
        }
        look = Look("test", problem.parts["test"].owners, kinds, forecasts(classes))
        for kind, one in kinds.items():
            scores = one.per_client(look.owners, problem.n)
            columns |= {f"test_{kind}": scores.score, f"test_loss_{kind}": scores.loss}
    return Newcomers(problem, chosen, _arrays(problem, trees), columns, look)


def _arrays(problem: Problem, trees: dict[str, Any]) -> Columns:
    """The models as a record holds them."""
    found: Columns = {}
    for kind in KINDS:
        found |= named(kind, trees[kind])
        if problem.torch is not None:
            counted = problem.torch.counted(trees[kind], of_each=kind != "global")
            found |= {f"{COUNTED}/{kind}/{name}": array for name, array in counted.items()}
    return found


def _problem(run: Record, federation: Federation, classes: tuple[str, ...]) -> Problem:
    """The network of the run on the newcomers' examples, with the run's classes."""
    name = run.config["model"]
    if not is_network(name) and not is_own(name):
        raise ScafflixError(
            f"The run trained {name!r}, a model of your own without a file; newcomers need one "
            "that FILE.py:NAME names."
        )
    if classes and federation.train.labels.ndim == 1:
        parts: dict[str, Any] = {
            key: replace(part, labels=codes_of(part.labels, classes).astype(np.int32))
            for key, part in federation.parts.items()
        }
        federation = replace(federation, **parts)
    network = model_by_name(name, federation.dim, len(classes))
    assert not isinstance(network, LinearModel)
    return Problem(federation, network, run.config.get("l2"))


def _global_model(run: Record, problem: Problem) -> Any:
    """x of the run as parameters of the problem's network."""
    leaves, form = jax.tree.flatten(problem.template)
    names = [f"global/{name}" for name in names_of(problem.template)]
    wanted = {name: leaf.shape for name, leaf in zip(names, leaves, strict=True)}
    if {name: np.shape(run.models.get(name, 0)) for name in names} != wanted:
        raise ScafflixError(
            f"The arrays of the run are not those of {run.config['model']} on these examples; give "
            "the same features in the same order, and the module of the run."
        )
    if problem.torch is not None:
        problem.torch.check_same(run.summary.get("module"))
    return jax.tree.unflatten(form, [run.models[name] for name in names])


def _recipe(run: Record) -> Recipe:
    """How the run looked for its clients' x_i*, as far as its record says."""
    known = run.summary.get("local_optima") or {}
    usual = usual_recipe(run.config.get("optima", "common"))
    asked = {key: run.config.get(f"optima_{key}") for key in ("batch", "steps")}
    asked |= {key: known[key] for key in ("stepsize", "steps") if key in known}
    return replace(usual, **{key: value for key, value in asked.items() if value is not None})
