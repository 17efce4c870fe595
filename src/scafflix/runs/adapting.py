"""Clients that took no part in a run: a model of their own, mixed with its global model.

Nobody else trains or is asked for anything. What the run's clients told about alpha is in its
record.
"""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np

from scafflix.core.errors import ScafflixError, ScafflixWarning
from scafflix.core.types import Floats
from scafflix.core.versions import versions
from scafflix.data import Federation, load
from scafflix.data.federation import Labels
from scafflix.data.tables import load_as
from scafflix.models import MODELS, is_network
from scafflix.models.linear import LinearModel, Targets
from scafflix.personalization.mixing import mixture
from scafflix.personalization.personalize import exact_optima
from scafflix.personalization.rules import blending, loo
from scafflix.personalization.rules.choosing import LOO, choice, weighed
from scafflix.personalization.rules.contract import GRID, Evidence, Told
from scafflix.problems.problem import Problem
from scafflix.record import Record
from scafflix.simulate.recording import example_counts, linear_look, linear_scores
from scafflix.simulate.taking_part import gain_errors, worth


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
    look = linear_look(problem, models, "test")
    clients = {
        "client": np.array(problem.federation.clients),
        **example_counts(problem.federation),
        "alpha": made.alpha,
        "alpha_note": note,
        "expected_gain": chosen.gain,
        "local_grad_norm": norms,
        **linear_scores(problem, models, "test"),
        **gain_errors(problem.n, look),
    }
    summary = {
        "method": run.summary["method"],
        "n_clients": problem.n,
        "n_active": 0,
        "rounds": 0,
        "dim": problem.size,
        "metric": problem.network.metric,
        "classes": list(_classes(run)),
        "label_kind": run.summary.get("label_kind", "text"),
        "alpha": {"rule": "loo", "expected_gain": float(chosen.gain.mean())},
        **worth(clients, look, problem.network.metric, seed),
        "versions": versions(),
    }
    metrics = {name: np.zeros(1, np.int64) for name in ("round", "iterations", "local_steps")}
    config = {**run.config, "data": str(source), "test": test, "data_seed": seed}
    config |= {} if split is None else {"split": split}
    return Record(config, summary, metrics, clients, models, chosen.curves, run.preprocessing)


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
    if "own" not in run.curves:  # of a federation, whose clients keep their curves
        return Told(run.curves["mean"], float(run.curves["scarcity"][0]))
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
    if run.preprocessing is not None:
        return load_as(source, run.preprocessing, split=split, label=label, test=test, seed=seed)
    one = None if split is not None else 1
    federated = "classes" not in run.summary  # then every client scaled by its own examples
    more = {name: run.config[name] for name in ("scale", "intercept") if name in run.config}
    asked: dict[str, Any] = more if federated else {}
    return load(source, clients=one, split=split, label=label, test=test, seed=seed, **asked)


def _classes(run: Record) -> tuple[str, ...]:
    """All labels of the run; of a federation, those that its nodes agreed on, in the order in
    which they number them."""
    if "classes" in run.summary:
        return tuple(run.summary["classes"])
    return tuple(map(str, np.unique(np.array(run.config.get("classes", ()))).tolist()))


def _problem(run: Record, model: LinearModel, federation: Federation) -> Problem:
    """The newcomers' losses, with the classes of the run."""
    labels = np.concatenate([part.labels for part in federation.parts.values()])
    classes = _classes(run)
    if not classes:
        return Problem(federation, model, run.config.get("l2"), targets=model.encode(labels))
    values = _codes(labels, classes)
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
