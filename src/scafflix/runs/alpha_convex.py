"""Which alpha, for a linear model: one division of the study into training and test examples."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import jax
import numpy as np
from jax import Array

from scafflix.core.precision import in_float64
from scafflix.core.types import Floats
from scafflix.data import Federation, from_clients, load
from scafflix.data.arrays import Part
from scafflix.methods.fedavg import fedavg
from scafflix.methods.scafflix import scafflix
from scafflix.models import MODELS, LinearModel
from scafflix.personalization.mixing import mixture
from scafflix.personalization.personalize import Personalization, personalize
from scafflix.personalization.rules import blending, loo
from scafflix.personalization.rules.choosing import LOO, chosen_by, rule_for, weighed
from scafflix.personalization.rules.contract import Evidence
from scafflix.problems.losses import Losses
from scafflix.problems.problem import Problem
from scafflix.runs.fates import Fate, Fates, fate
from scafflix.runs.studies import divided, scored
from scafflix.simulate.planning import optima, plan
from scafflix.simulate.recording import Run
from scafflix.simulate.together import models_by_round

RULES = ("loo", "james-stein", "common")  # and validation, which trains on fewer examples
LOWER = (0.3, 0.5)  # alphas of training that are looked at round by round, besides 1
LEVELS = (0.5, 0.0)  # of the test by which a client's own evidence forbids an alpha, for comparison
FINE_TUNING = 20  # gradient steps from x, with which newcomers are compared


def fates_of(settings: Mapping[str, Any], panel: Mapping[str, Any], division: int) -> Fates:
    """What clients have at the end, after how many rounds, and as newcomers, by every line."""
    problem = _problem(panel, _federation(panel, division))
    person = personalize(problem, 1.0)
    models, rounds = _models(problem, person, panel, division)
    ends = {"local": person.points, "global": rounds["alpha 1, as trained"][panel["rounds"]]}
    ends |= models
    flat = {(line, look): x for line, looks in rounds.items() for look, x in looks.items()}
    losses, scores = scored(problem, [*ends.values(), *flat.values()])
    made = [fate(*one, losses[0]) for one in zip(losses, scores, strict=True)]
    found: dict[Any, Fate] = dict(zip([*ends, *flat], made, strict=True))
    found["validation"] = _by_validation(settings, panel, division, losses[0])
    return Fates(
        {line: found[line] for line in (*ends, "validation")},
        {line: {look: found[line, look] for look in looks} for line, looks in rounds.items()},
        _newcomers(settings, problem, division) if panel.get("newcomers") else {},
    )


def _federation(panel: Mapping[str, Any], division: int, validation: float = 0.0) -> Federation:
    if "rows" in panel:
        return _with_rows(load(panel["data"]), panel["rows"], division, validation)
    if "uneven" in panel:
        whole = load(panel["data"], clients=1)
        return _uneven(whole, panel["uneven"], division, validation)
    names = ("clients", "split", "scale", "intercept", "test")
    options = {name: panel[name] for name in names if name in panel}
    return load(panel["data"], **options, validation=validation, seed=division)


def _uneven(
    whole: Federation, sizes: Mapping[str, int], division: int, validation: float
) -> Federation:
    """A few large clients, each with some of the classes and all alike in size, and many tiny ones
    with a few rows of all classes; features as below."""
    labels, classes = whole.train.labels, np.unique(whole.train.labels)
    left = np.random.default_rng(division).permutation(len(labels))
    rows: dict[object, Part] = {}
    cuts, test = [], sizes["test"]
    for client in range(sizes["large"] + sizes["tiny"]):
        large = client < sizes["large"]
        first = client * sizes["classes"]
        mine = classes[np.arange(first, first + sizes["classes"]) % len(classes)]
        fits = np.isin(labels[left], mine) if large else np.ones(len(left), bool)
        count = sizes["rows"] if large else 1 + client % sizes["most"]
        taken = np.flatnonzero(fits)[: test + count]
        name = f"{'large' if large else 'tiny'}-{client}"
        rows[name] = whole.train.features[left[taken]], labels[left[taken]]
        left, end = np.delete(left, taken), test + round(validation * count)
        order = np.arange(len(taken))
        cuts.append({"validation": order[test:end], "train": order[end:], "test": order[:test]})
    return divided(from_clients(rows, name=whole.name), cuts)


def _with_rows(whole: Federation, rows: int, division: int, validation: float) -> Federation:
    """Clients with so many rows each to train on, all others to test; features standardized by
    the former, and an intercept."""
    held_out, cuts = round(validation * rows), []
    for client, count in enumerate(whole.train.counts):
        order = np.random.default_rng((division, client)).permutation(count)
        parts = {"validation": order[:held_out], "train": order[held_out:rows]}
        cuts.append({**parts, "test": order[rows:]})
    return divided(whole, cuts)


def _problem(panel: Mapping[str, Any], federation: Federation) -> Problem:
    return Problem(federation, MODELS[panel["model"]](), l2=panel["l2"])


Models = dict[str, Floats]  # of every client, by the line


def _models(
    problem: Problem, person: Personalization, panel: Mapping[str, Any], division: int
) -> tuple[Models, dict[str, dict[int, Floats]]]:
    """What clients have at the end, and after how many rounds, by every line."""
    alphas, looks, last = panel["alphas"], panel["looks"], panel["rounds"]
    persons = {alpha: person.at(alpha) for alpha in alphas}
    runs = [Run(one, scafflix(plan(problem, one)), division) for one in persons.values()]
    from_zeros = partial(models_by_round, problem, rounds=last, start="zeros")
    paths = dict(zip(alphas, from_zeros(runs), strict=True))
    together = Run(person, fedavg(plan(problem, person)), division)
    moved = loo.influences(problem, person.points)  # for all the x that are judged below

    def chosen(x: Floats, word: str = "loo", level: float | None = None) -> Floats:
        rule = rule_for(word, problem)
        if word != "james-stein":
            rule = rule._replace(evidence=partial(loo.evidence, moved=moved))
        if level is not None:
            rule = rule._replace(decide=partial(blending.blended_with, level=level))
        alpha = chosen_by(rule, problem, person.points, x).alpha
        return np.asarray(mixture(alpha, x, person.points))

    def renewed(path: Floats, look: int) -> Floats:
        """x after half of the rounds; then a round in which the control variates are put in order
        for alpha = 1, and the others at that."""
        if look < 3:
            return np.asarray(path[look])
        half = look // 2
        rest = look - half - 1
        again = models_by_round(problem, [runs[-1]], rounds=rest, start=path[half], h0="warm")
        return np.asarray(again[0][rest])

    (warm,) = from_zeros(runs[-1:], h0="warm")  # which costs a round
    (averaged,) = from_zeros([together])
    ends = {f"alpha {alpha:g}": persons[alpha].mix(path[last]) for alpha, path in paths.items()}
    x = paths[1.0][last]
    ends |= {rule: chosen(x, rule) for rule in RULES}
    ends |= {f"loo at {level:g}": chosen(x, level=level) for level in LEVELS}
    rounds = {"FedAvg": {look: np.asarray(averaged[look]) for look in looks}}
    for alpha in (1.0, *LOWER):
        path, mixed = paths[alpha], persons[alpha]
        rounds[f"alpha {alpha:g}, as trained"] = {look: mixed.mix(path[look]) for look in looks}
        rounds[f"alpha {alpha:g}, chosen"] = {look: chosen(path[look]) for look in looks}
    rounds |= {
        f"alpha {LOWER[0]:g}, then 1, chosen": {
            look: chosen(renewed(paths[LOWER[0]], look)) for look in looks
        },
        "alpha 1, h renewed, chosen": {look: chosen(renewed(paths[1.0], look)) for look in looks},
        "alpha 1, h warm, chosen": {look: chosen(warm[look - 1]) for look in looks},
    }
    return ends, rounds


def _by_validation(
    settings: Mapping[str, Any], panel: Mapping[str, Any], division: int, alone: Floats
) -> Fate:
    """The rule that holds examples out of the training for itself, against models that were
    trained on all of them."""
    problem = _problem(panel, _federation(panel, division, settings["validation"]))
    person = personalize(problem, 1.0)
    x = np.asarray(optima(problem, [person])[0].x)
    alpha = chosen_by(rule_for("validation", problem), problem, person.points, x).alpha
    loss, score = scored(problem, [np.asarray(mixture(alpha, x, person.points))])
    return fate(loss[0], score[0], alone)


def _newcomers(
    settings: Mapping[str, Any], problem: Problem, division: int
) -> dict[int, dict[str, Fate]]:
    """Clients that took no part, with a few examples each: alone, with x, tuned from x, mixed."""
    drawn = np.random.default_rng(division).permutation(problem.n)
    absent = np.sort(drawn[: max(1, round(settings["absent"] * problem.n))])
    present = problem.take(np.setdiff1d(np.arange(problem.n), absent))
    person = personalize(present, 1.0)
    x = np.asarray(optima(present, [person])[0].x)
    others = blending.told(weighed(present, LOO, loo.evidence(present, person.points, x))[0])
    made: dict[int, dict[str, Fate]] = {}
    for size in settings["newcomers"]:
        counts = problem.federation.train.counts[absent]
        able = absent[counts >= size]
        if not len(able):
            continue
        few = _with_few(problem, able, size)
        stars = personalize(few, 1.0).points
        evidence, _ = weighed(few, LOO, loo.evidence(few, stars, x, share=0.0))

        def adapted(level: float, evidence: Evidence = evidence, stars: Floats = stars) -> Floats:
            alpha = blending.blended_with(evidence, others, level).alpha
            return np.asarray(mixture(alpha, x, stars))

        lines = {
            "alone": stars,
            "global": x,
            "fine-tuned": _fine_tuned(few, x),
            "adapted": adapted(blending.LEVEL),
            **{f"adapted at {level:g}": adapted(level) for level in LEVELS},
        }
        losses, scores = scored(few, list(lines.values()))
        made[size] = {
            line: fate(loss, score, losses[0])
            for line, loss, score in zip(lines, losses, scores, strict=True)
        }
    return made


def _with_few(problem: Problem, clients: Any, size: int) -> Problem:
    """Some clients with the first of their training examples only."""
    part = problem.take(clients)
    train = part.federation.train
    rows = np.concatenate([np.arange(first, first + size) for first in train.offsets[:-1]])
    offsets = size * np.arange(part.n + 1)
    fewer = type(train)(train.features[rows], train.labels[rows], offsets)
    federation = replace(part.federation, train=fewer)
    kept = np.concatenate([part.labels["train"][rows], part.labels["test"]])
    targets = part.targets._replace(values=kept)
    assert isinstance(part.model, LinearModel)
    return Problem(federation, part.model, part.l2, targets=targets)


@in_float64
def _fine_tuned(problem: Problem, x: Floats) -> Floats:
    """Gradient steps of 1/L_i from x on each client's own loss."""
    step = 1 / problem.constants.L.reshape(-1, *(1,) * x.ndim)
    return np.asarray(_descended(problem.losses, step, np.tile(x, (problem.n, *(1,) * x.ndim))))


@jax.jit
def _descended(losses: Losses, step: Array, x: Array) -> Array:
    return jax.lax.fori_loop(
        0, FINE_TUNING, lambda _, x: x - step * losses.gradients(x[None])[0], x
    )
