"""Clients that took no part in a run: a model of their own, mixed with its global model.

Nobody else trains or is asked for anything. What the run's clients told about alpha is in its
record.
"""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from scafflix.core.errors import ScafflixError, ScafflixWarning
from scafflix.core.types import Floats
from scafflix.core.versions import versions
from scafflix.data import Federation, load
from scafflix.data.federation import Labels
from scafflix.data.origin import resolve
from scafflix.data.tables import load_as
from scafflix.models import MODELS
from scafflix.models.linear import LinearModel, Targets
from scafflix.personalization.exact import exact_optima
from scafflix.personalization.mixing import mixture
from scafflix.personalization.rules import blending, loo
from scafflix.personalization.rules.choosing import LOO, Choice, choice, weighed
from scafflix.personalization.rules.contract import Evidence, Told
from scafflix.problems.problem import Problem
from scafflix.record import Record
from scafflix.simulate.recording import example_counts
from scafflix.simulate.scoring import linear_look, linear_scores
from scafflix.simulate.taking_part import Look, gain_errors, worth

Columns = dict[str, NDArray[Any]]
VALIDATION_SHARE = 0.2  # of a newcomer's examples, of a network


class Newcomers(NamedTuple):
    """What was found for clients that took no part."""

    problem: Problem
    choice: Choice
    models: Columns  # global, local and personal, as a record holds them
    columns: Columns  # of the table of clients: how good the models are, and x_i* is
    look: Look | None  # on their test examples


def adapt(
    run: Record,
    source: str | Path,
    *,
    split: str | None = None,
    label: str | None = None,
    test: float = 0.0,
    validation: float | None = None,
    seed: int = 0,
) -> Record:
    """Every newcomer's x_i*, alpha_i, and mixture with the run's global model, as a record without
    rounds. Without `split`, all rows are one newcomer's.

    Of a linear model, alpha_i is chosen by leave-one-out; of a network, by validation examples,
    which also stop the search for x_i* from the global model.
    """
    if not any(name == "global" or name.startswith("global/") for name in run.models):
        raise ScafflixError("The run kept no global model; run it with keep personal or global.")
    linear = run.config["model"] in MODELS
    if linear and validation is not None:
        raise ScafflixError("validation is for networks; a linear model chooses by leave-one-out.")
    held_out = 0.0 if linear else VALIDATION_SHARE if validation is None else validation
    federation = _newcomers(run, source, split, label, test, held_out, seed)
    if linear:
        found = _linear(run, federation, source)
    else:
        from scafflix.runs.adapting_networks import network_newcomers

        found = network_newcomers(run, federation, classes_of(run))
    problem, chosen = found.problem, found.choice
    clients = {
        "client": np.array(problem.federation.clients),
        **example_counts(problem.federation),
        "alpha": chosen.alpha,
        "alpha_note": chosen.note,
        "expected_gain": chosen.gain,
        **found.columns,
        **gain_errors(problem.n, found.look),
    }
    module = {"module": run.summary["module"]} if "module" in run.summary else {}
    summary = {
        "method": run.summary["method"],
        "n_clients": problem.n,
        "n_active": 0,
        "rounds": 0,
        "dim": problem.size,
        "metric": problem.network.metric,
        "classes": list(classes_of(run)),
        "label_kind": run.summary.get("label_kind", "text"),
        "tuned": not linear,  # from the shared model
        "alpha": {"rule": chosen.rule, "expected_gain": float(chosen.gain.mean())},
        **worth(clients, found.look, problem.network.metric, seed),
        **module,
        "versions": versions(),
    }
    metrics = {name: np.zeros(1, np.int64) for name in ("round", "iterations", "local_steps")}
    config = {**run.config, "data": str(source), "test": test, "data_seed": seed}
    config |= {} if linear else {"validation": held_out}
    config |= {} if split is None else {"split": split}
    curves = chosen.curves
    return Record(config, summary, metrics, clients, found.models, curves, run.preprocessing)


def _linear(run: Record, federation: Federation, source: str | Path) -> Newcomers:
    """x_i* by Newton's method, alpha_i by leave-one-out."""
    x = run.models["global"]
    problem = _problem(run, MODELS[run.config["model"]](), federation)
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
    columns = {"local_grad_norm": norms, **linear_scores(problem, models, "test")}
    return Newcomers(problem, chosen, models, columns, linear_look(problem, models, "test"))


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
        return blending.NOTHING
    if "own" not in run.curves:  # of a federation, whose clients keep their curves
        noise = run.curves.get("noise", np.zeros(1))  # which records did not have at first
        return Told(run.curves["mean"], float(run.curves["scarcity"][0]), float(noise[0]))
    part = "validation" if run.summary["alpha"]["rule"] == "validation" else "train"
    weight = run.clients[f"{part}_examples"].astype(float)
    return blending.told(Evidence(run.curves["own"], weight))


def _newcomers(
    run: Record,
    source: str | Path,
    split: str | None,
    label: str | None,
    test: float,
    validation: float,
    seed: int,
) -> Federation:
    """The newcomers' data with the features that the run's model knows, scaled as there."""
    parts: dict[str, Any] = {"test": test, "validation": validation}
    if run.preprocessing is not None:
        return load_as(source, run.preprocessing, split=split, label=label, seed=seed, **parts)
    one = None if split is not None else 1
    federated = "classes" not in run.summary  # then every client scaled by its own examples
    more = {name: run.config[name] for name in ("scale", "intercept") if name in run.config}
    asked: dict[str, Any] = more if federated else {}
    if resolve(source).kind == "huggingface":
        label = label or run.config.get("label")
    return load(source, clients=one, split=split, label=label, seed=seed, **parts, **asked)


def classes_of(run: Record) -> tuple[str, ...]:
    """All labels of the run; of a federation, those that its nodes agreed on, in the order in
    which they number them."""
    if "classes" in run.summary:
        return tuple(run.summary["classes"])
    return tuple(map(str, np.unique(np.array(run.config.get("classes", ()))).tolist()))


def _problem(run: Record, model: LinearModel, federation: Federation) -> Problem:
    """The newcomers' losses, with the classes of the run."""
    labels = np.concatenate([part.labels for part in federation.parts.values()])
    classes = classes_of(run)
    if not classes:
        return Problem(federation, model, run.config.get("l2"), targets=model.encode(labels))
    values = codes_of(labels, classes)
    if model.name == "logistic":
        values = np.where(values == 1, 1.0, -1.0)
    outputs = (len(classes),) if model.name == "softmax" else ()
    targets = Targets(values, outputs, classes)
    return Problem(federation, model, run.config.get("l2"), targets=targets)


def codes_of(labels: Labels, classes: tuple[str, ...]) -> Floats:
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
