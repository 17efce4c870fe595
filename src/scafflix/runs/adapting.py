"""Clients that took no part in a run: a model of their own, mixed with its global model.

Nobody else trains or is asked for anything. What the run's clients told about alpha is in its
record.
"""

from __future__ import annotations

import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from scafflix.core.errors import ScafflixError, ScafflixWarning
from scafflix.core.types import Floats
from scafflix.core.versions import versions
from scafflix.data import Federation, load
from scafflix.data.federation import Features, Labels, Scaling
from scafflix.data.origin import resolve
from scafflix.data.scaling import append_intercept, map_features, scale_as
from scafflix.data.table import OF_TEXT
from scafflix.models import MODELS, is_network
from scafflix.models.linear import LinearModel, Targets
from scafflix.personalization.mixing import mixture
from scafflix.personalization.personalize import exact_optima
from scafflix.personalization.rules import blending, loo
from scafflix.personalization.rules.choosing import LOO, choice, weighed
from scafflix.personalization.rules.contract import GRID, Evidence, Told
from scafflix.problems.problem import Problem
from scafflix.record import Record
from scafflix.simulate.recording import example_counts, linear_scores
from scafflix.simulate.taking_part import gained


def adapt(
    run: Record,
    source: str | Path,
    *,
    split: str | None = None,
    label: str | None = None,
    test: float = 0.0,
    seed: int = 0,
) -> Record:
    """Every newcomer's x_i*, alpha_i by leave-one-out, and mixture with the run's global model, as
    a record without rounds. Without `split`, all rows are one newcomer's."""
    x = _global_model(run)
    model = MODELS[run.config["model"]]()
    problem = _problem(run, model, _newcomers(run, source, split, label, test, seed))
    if problem.shape != x.shape:
        raise ScafflixError(
            f"{source} has {problem.federation.dim} features after preparation, but the model of "
            f"the run has {x.shape[0]}; give the same features in the same order."
        )
    loo.check(problem)
    stars, norms = exact_optima(problem)
    evidence, note = weighed(problem, LOO, loo.evidence(problem, stars, x, share=0.0))
    made = blending.blended_with(evidence, told_by(run))
    chosen = choice("loo", evidence, made, note)
    models = {"global": x, "local": stars, "personal": np.asarray(mixture(made.alpha, x, stars))}
    clients = {
        "client": np.array(problem.federation.clients),
        **example_counts(problem.federation),
        "alpha": made.alpha,
        "alpha_note": note,
        "expected_gain": chosen.gain,
        "local_grad_norm": norms,
        **linear_scores(problem, models, "test"),
    }
    summary = {
        "method": run.summary["method"],
        "n_clients": problem.n,
        "n_active": 0,
        "rounds": 0,
        "dim": problem.size,
        "metric": problem.network.metric,
        "classes": run.summary["classes"],
        "features": run.summary["features"],
        "alpha": {"rule": "loo", "expected_gain": float(chosen.gain.mean())},
        "taking_part": gained(clients),
        "versions": versions(),
    }
    metrics = {name: np.zeros(1, np.int64) for name in ("round", "iterations", "local_steps")}
    config = {**run.config, "data": str(source), "test": test, "data_seed": seed}
    config |= {} if split is None else {"split": split}
    return Record(config, summary, metrics, clients, models, chosen.curves, run.features)


def told_by(run: Record) -> Told:
    """What the clients of a run tell a newcomer; that there is nothing to gain where they chose no
    alpha, so that it goes by its own examples alone."""
    if not run.curves:
        warnings.warn(
            "The clients of the run chose no alpha, so that they tell nothing: newcomers judge by "
            "their own examples alone.",
            ScafflixWarning,
            stacklevel=2,
        )
        return Told(np.zeros(len(GRID)), 1.0)
    part = "validation" if run.summary["alpha"]["rule"] == "validation" else "train"
    weight = run.clients[f"{part}_examples"].astype(float)
    return blending.told(Evidence(run.curves["own"], weight))


def _global_model(run: Record) -> Floats:
    if is_network(run.config["model"]):
        raise ScafflixError(
            f"The run trained the network {run.config['model']}; newcomers can be adapted to "
            "linear models only."
        )
    if "global" not in run.models:
        raise ScafflixError("The run kept no global model; run it with keep personal or global.")
    return run.models["global"]


def _newcomers(
    run: Record,
    source: str | Path,
    split: str | None,
    label: str | None,
    test: float,
    seed: int,
) -> Federation:
    """The newcomers' data with the features that the run's model knows, scaled as there."""
    table = resolve(source).kind == "table"
    one = None if split is not None else 1
    asked = label or run.config.get("label") if table else label
    found = load(source, clients=one, split=split, label=asked, test=test, seed=seed)
    if run.summary["features"] or found.names:
        found = _aligned(found, run.summary["features"], source)
    if run.features:
        scaling = Scaling(run.features["shift"], run.features["divisor"])
        if len(scaling.shift) != found.dim:
            raise ScafflixError(
                f"{source} has {found.dim} features, but the run was scaled for "
                f"{len(scaling.shift)}; give the same features in the same order."
            )
        found = scale_as(found, scaling)
    return append_intercept(found) if run.config.get("intercept") else found


def _aligned(found: Federation, wanted: list[str], source: str | Path) -> Federation:
    """The features in the order of the run; a value of a text column that does not occur is 0."""
    place = {name: k for k, name in enumerate(found.names)}
    columns = {name.partition(OF_TEXT)[0] for name in found.names if OF_TEXT in name}
    for name in wanted:
        if name not in place and name.partition(OF_TEXT)[0] not in columns:
            raise ScafflixError(f"{source} has no feature {name!r}, which the run's model knows.")
    unknown = [name for name in found.names if name not in wanted]
    if unknown:
        raise ScafflixError(f"{source} has a feature {unknown[0]!r} that the run's model lacks.")
    order = np.array([place.get(name, -1) for name in wanted])

    def ordered(features: Features) -> Features:
        dense = features if isinstance(features, np.ndarray) else features.toarray()
        return np.where(order >= 0, dense[:, order], 0.0)

    return replace(map_features(found, ordered), names=tuple(wanted))


def _problem(run: Record, model: LinearModel, federation: Federation) -> Problem:
    """The newcomers' losses, with the classes of the run."""
    labels = np.concatenate([part.labels for part in federation.parts.values()])
    classes = tuple(run.summary["classes"])
    values = _codes(labels, classes) if classes else model.encode(labels).values
    if model.name == "logistic":
        values = np.where(values == 1, 1.0, -1.0)
    outputs = (len(classes),) if model.name == "softmax" else ()
    targets = Targets(values, outputs, classes)
    return Problem(federation, model, run.config.get("l2"), targets=targets)


def _codes(labels: Labels, classes: tuple[str, ...]) -> Floats:
    """The number of each label among the classes of the run."""
    code: dict[Any, int] = {_plain(name): k for k, name in enumerate(classes)}
    words = [_plain(str(label)) for label in labels.tolist()]
    for word, label in zip(words, labels.tolist(), strict=True):
        if word not in code:
            raise ScafflixError(
                f"A label is {label!r}, but the run knows {', '.join(classes[:5])}"
                f"{', ...' if len(classes) > 5 else ''}."
            )
    return np.array([code[word] for word in words], float)


def _plain(word: str) -> str | float:
    """1 and 1.0 are one label."""
    try:
        return float(word)
    except ValueError:
        return word
