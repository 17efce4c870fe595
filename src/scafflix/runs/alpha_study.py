"""Which alpha, and when: rules that choose it against every common alpha, on divisions of convex
data into training and test examples.

What one division gives is kept in the cache, so that a study that was stopped goes on.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import jax
import numpy as np
from jax import Array

from scafflix.core import durable
from scafflix.core.cache import cache_folder
from scafflix.core.digest import digest_of
from scafflix.core.errors import ScafflixError, ScafflixWarning
from scafflix.core.precision import in_float64
from scafflix.core.progress import Progress
from scafflix.core.types import Floats
from scafflix.data import Federation, from_clients, load
from scafflix.data.arrays import Part
from scafflix.methods.scafflix import scafflix
from scafflix.models import MODELS, LinearModel
from scafflix.personalization.mixing import mixture
from scafflix.personalization.personalize import Personalization, personalize
from scafflix.personalization.rules import blending, loo
from scafflix.personalization.rules.choosing import LOO, choose, weighed
from scafflix.problems.losses import Losses
from scafflix.problems.problem import Problem
from scafflix.runs.runner import figure_settings
from scafflix.simulate.planning import optima, plan
from scafflix.simulate.recording import Run
from scafflix.simulate.run import models_by_round

RECIPE = 3  # to be raised when the same settings give other numbers
RULES = ("loo", "james-stein", "common")  # and validation, which trains on fewer examples
LOWER = (0.3, 0.5)  # alphas of training that are looked at round by round, besides 1
FINE_TUNING = 20  # gradient steps from x, with which newcomers are compared


class Fate(NamedTuple):
    """How the clients of one division fare with one kind of model."""

    loss: float  # the mean over clients on their test examples
    accuracy: float
    p10: float  # of the accuracy: a tenth of the clients do worse
    hurt: float  # share of the clients whose loss is above that of their own model


class Study(NamedTuple):
    """What the divisions of one data set gave: for every line, a fate from each division."""

    title: str
    ends: dict[str, list[Fate]]  # after the last round: local, global, common alphas, rules
    rounds: dict[str, dict[int, list[Fate]]]  # line -> rounds -> fates
    newcomers: dict[int, dict[str, list[Fate]]]  # examples -> line -> fates


def study(
    changes: Mapping[str, str] | None = None, progress: Progress | None = None
) -> list[Study]:
    """All data sets; `changes` to divisions, rounds and looks are for trying it out."""
    settings = figure_settings("alpha")
    settings |= _changed(settings, changes or {})
    divisions, panels = settings["divisions"], settings["panels"]
    found = []
    for number, panel in enumerate(panels):
        made = []
        for division in range(divisions):
            if progress is not None:
                done, total = number * divisions + division, len(panels) * divisions
                progress(done, total, f"{panel['title']}, division {division + 1}")
            made.append(_kept(settings, panel, division))
        found.append(_gathered(panel["title"], made))
    return found


def _changed(settings: Mapping[str, Any], changes: Mapping[str, str]) -> dict[str, Any]:
    """Whole numbers, one or several, for keys that can be changed."""
    made: dict[str, Any] = {}
    for name, words in changes.items():
        if name not in ("divisions", "rounds", "looks", "panels"):
            raise ScafflixError(
                f"There is no key {name!r} of this study; it has divisions, rounds, looks, panels."
            )
        try:
            numbers = [int(word) for word in words.split(",")]
        except ValueError:
            raise ScafflixError(f"{name} is {words!r}; give whole numbers.") from None
        if min(numbers) < (0 if name == "panels" else 1):
            raise ScafflixError(f"{name} is {words!r}; give numbers of at least 1.")
        made[name] = numbers if name in ("looks", "panels") else numbers[0]
    if "panels" in made:
        every = settings["panels"]
        made["panels"] = [every[k] for k in made["panels"] if k < len(every)]
    looks = made.get("looks", settings["looks"])
    rounds = made.get("rounds", settings["rounds"])
    return {**made, "looks": sorted({min(look, rounds) for look in looks} | {rounds})}


def _kept(settings: Mapping[str, Any], panel: Mapping[str, Any], division: int) -> dict[str, Any]:
    """One division, from the cache if it was made before."""
    shared = {
        name: value for name, value in settings.items() if name not in ("panels", "divisions")
    }
    name = digest_of(RECIPE, json.dumps([shared, dict(panel), division], sort_keys=True))
    file = cache_folder() / "alpha" / f"{name}.json"
    if not file.exists():
        made = _division(settings, panel, division)
        durable.new_folder(file.parent)
        durable.put(file, [json.dumps(made).encode()])
    try:
        found: dict[str, Any] = json.loads(file.read_text())
    except ValueError:
        raise ScafflixError(f"{file} does not hold a division of the study; remove it.") from None
    return found


def _gathered(title: str, made: Sequence[dict[str, Any]]) -> Study:
    """The same line of all divisions side by side."""

    def fates(*path: str) -> list[Fate]:
        found = []
        for one in made:
            for key in path:
                one = one.get(key, {})
            if one:
                found.append(Fate(**one))
        return found

    first = made[0]
    rounds = {
        line: {int(look): fates("rounds", line, look) for look in looks}
        for line, looks in first["rounds"].items()
    }
    sizes = dict.fromkeys(size for one in made for size in one["newcomers"])
    lines = dict.fromkeys(
        line for one in made for size in one["newcomers"].values() for line in size
    )
    newcomers = {
        int(size): {line: fates("newcomers", size, line) for line in lines} for size in sizes
    }
    return Study(title, {line: fates("ends", line) for line in first["ends"]}, rounds, newcomers)


def _division(
    settings: Mapping[str, Any], panel: Mapping[str, Any], division: int
) -> dict[str, Any]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ScafflixWarning)  # clients of one class are expected here
        problem = _problem(panel, _federation(panel, division))
        person = personalize(problem, 1.0)
        models, rounds = _models(problem, person, settings, division)
        last = settings["rounds"]
        ends = {"local": person.points, "global": rounds["alpha 1, as trained"][last]}
        ends |= models
        flat = {(line, look): x for line, looks in rounds.items() for look, x in looks.items()}
        losses, scores = _scores(problem, [*ends.values(), *flat.values()])
        fates = [_fate(*one, losses[0]) for one in zip(losses, scores, strict=True)]
        found: dict[Any, Fate] = dict(zip([*ends, *flat], fates, strict=True))
        found["validation"] = _by_validation(settings, panel, division, losses[0])
        newcomers = _newcomers(settings, panel, problem, division) if "newcomers" in panel else {}
    by_round: dict[str, dict[str, Any]] = {line: {} for line in rounds}
    for line, look in flat:
        by_round[line][str(look)] = found[line, look]._asdict()
    return {
        "ends": {line: found[line]._asdict() for line in (*ends, "validation")},
        "rounds": by_round,
        "newcomers": newcomers,
    }


def _federation(panel: Mapping[str, Any], division: int, validation: float = 0.0) -> Federation:
    if "rows" in panel:
        return _with_rows(load(panel["data"]), panel["rows"], division, validation)
    names = ("clients", "split", "scale", "intercept", "test")
    options = {name: panel[name] for name in names if name in panel}
    return load(panel["data"], **options, validation=validation, seed=division)


def _with_rows(whole: Federation, rows: int, division: int, validation: float) -> Federation:
    """Clients with so many rows each to train on, all others to test; features standardized by
    the former, and an intercept."""
    spans = list(zip(whole.train.offsets[:-1], whole.train.offsets[1:], strict=True))
    features = [whole.train.features[slice(*span)] for span in spans]
    labels = [whole.train.labels[slice(*span)] for span in spans]
    orders = [
        np.random.default_rng((division, k)).permutation(len(b)) for k, b in enumerate(labels)
    ]
    seen = np.concatenate([A[order[:rows]] for A, order in zip(features, orders, strict=True)])
    middle, spread = seen.mean(axis=0), seen.std(axis=0)
    held_out = round(validation * rows)
    parts: dict[str, dict[object, Part]] = {part: {} for part in ("train", "test", "validation")}
    for client, A, b, order in zip(whole.clients, features, labels, orders, strict=True):
        scaled = np.hstack([(A - middle) / spread, np.ones((len(A), 1))])
        cuts = {"validation": order[:held_out], "train": order[held_out:rows], "test": order[rows:]}
        for part, chosen in cuts.items():
            parts[part][client] = scaled[chosen], b[chosen]
    made = from_clients(parts["train"], held_out=parts["test"], name=whole.name)
    if not held_out:
        return made
    return replace(made, validation=from_clients(parts["validation"]).train)


def _problem(panel: Mapping[str, Any], federation: Federation) -> Problem:
    return Problem(federation, MODELS[panel["model"]](), l2=panel["l2"])


Models = dict[str, Floats]  # of every client, by the line


def _models(
    problem: Problem, person: Personalization, settings: Mapping[str, Any], division: int
) -> tuple[Models, dict[str, dict[int, Floats]]]:
    """What clients have at the end, and after how many rounds, by every line."""
    alphas, last = settings["alphas"], settings["rounds"]
    persons = {alpha: person.at(alpha) for alpha in alphas}
    runs = [Run(one, scafflix(plan(problem, one)), division) for one in persons.values()]
    paths = dict(
        zip(alphas, models_by_round(problem, runs, rounds=last, start="zeros"), strict=True)
    )

    def chosen(x: Floats, rule: str = "loo") -> Floats:
        alpha = choose(problem, rule, person.points, x).alpha
        return np.asarray(mixture(alpha, x, person.points))

    ends = {f"alpha {alpha:g}": persons[alpha].mix(path[last]) for alpha, path in paths.items()}
    ends |= {rule: chosen(paths[1.0][last], rule) for rule in RULES}
    looks = settings["looks"]
    rounds: dict[str, dict[int, Floats]] = {}
    for alpha in (1.0, *LOWER):
        path, mixed = paths[alpha], persons[alpha]
        rounds[f"alpha {alpha:g}, as trained"] = {look: mixed.mix(path[look]) for look in looks}
        rounds[f"alpha {alpha:g}, chosen"] = {look: chosen(path[look]) for look in looks}
    rounds[f"alpha {LOWER[0]:g}, then 1, chosen"] = {
        look: chosen(_changed_under_way(problem, person, paths[LOWER[0]], runs[-1], look, last))
        for look in looks
    }
    return ends, rounds


def _changed_under_way(
    problem: Problem, person: Personalization, path: Floats, run: Run, look: int, last: int
) -> Floats:
    """x after half of the rounds at a lower alpha; then a round in which the control variates are
    put in order again, and the others at alpha = 1."""
    if look < 3:
        return np.asarray(path[look])
    half = look // 2
    again = models_by_round(problem, [run], rounds=last, start=path[half], h0="warm")
    return np.asarray(again[0][look - half - 1])


def _by_validation(
    settings: Mapping[str, Any], panel: Mapping[str, Any], division: int, alone: Floats
) -> Fate:
    """The rule that holds examples out of the training for itself, against models that were
    trained on all of them."""
    problem = _problem(panel, _federation(panel, division, settings["validation"]))
    person = personalize(problem, 1.0)
    x = np.asarray(optima(problem, [person])[0].x)
    alpha = choose(problem, "validation", person.points, x).alpha
    loss, score = _scores(problem, [np.asarray(mixture(alpha, x, person.points))])
    return _fate(loss[0], score[0], alone)


def _fates(problem: Problem, models: Sequence[Floats]) -> list[Fate]:
    """How clients fare with each kind of model; the first are their own."""
    losses, scores = _scores(problem, models)
    return [_fate(*one, losses[0]) for one in zip(losses, scores, strict=True)]


def _fate(loss: Floats, score: Floats, alone: Floats) -> Fate:
    """Over the clients that have test examples."""
    known = np.isfinite(alone)
    loss, score = loss[known], score[known]
    unlucky = float(np.percentile(score, 10))
    hurt = float((loss > alone[known]).mean())
    return Fate(float(loss.mean()), float(score.mean()), unlucky, hurt)


@in_float64
def _scores(problem: Problem, models: Sequence[Floats]) -> tuple[Floats, Floats]:
    """Loss and score of every kind of model on each client's test part, `[kinds, clients]`."""
    everyone = problem.n, *problem.shape
    points = np.stack([np.broadcast_to(one, everyone) for one in models])
    losses, scores = _scored(problem.held_out["test"], points)
    return np.asarray(losses), np.asarray(scores)


@jax.jit
def _scored(losses: Losses, points: Array) -> tuple[Array, Array]:
    return losses.mean_losses(points), losses.scores(points)


def _newcomers(
    settings: Mapping[str, Any], panel: Mapping[str, Any], problem: Problem, division: int
) -> dict[str, dict[str, Any]]:
    """Clients that took no part, with a few examples each: alone, with x, tuned from x, mixed."""
    drawn = np.random.default_rng(division).permutation(problem.n)
    absent = np.sort(drawn[: max(1, round(settings["absent"] * problem.n))])
    present = problem.take(np.setdiff1d(np.arange(problem.n), absent))
    person = personalize(present, 1.0)
    x = np.asarray(optima(present, [person])[0].x)
    others = blending.told(weighed(present, LOO, loo.evidence(present, person.points, x))[0])
    made: dict[str, dict[str, Any]] = {}
    for size in settings["newcomers"]:
        counts = problem.federation.train.counts[absent]
        able = absent[counts >= size]
        if not len(able):
            continue
        few = _with_few(problem, able, size)
        stars = personalize(few, 1.0).points
        evidence, _ = weighed(few, LOO, loo.evidence(few, stars, x, share=0.0))
        alpha = blending.blended_with(evidence, others).alpha
        lines = {
            "alone": stars,
            "global": x,
            "fine-tuned": _fine_tuned(few, x),
            "adapted": np.asarray(mixture(alpha, x, stars)),
        }
        fates = _fates(few, list(lines.values()))
        made[str(size)] = {line: fate._asdict() for line, fate in zip(lines, fates, strict=True)}
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
