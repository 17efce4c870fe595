"""Published comparisons made again: their data, divided as they were, our models beside their
figures.

Every line is trained to the end on each division. Where it is known with how little training the
published figures were made, the lines that have a `budget` are also trained like that, on the first
division, which is then theirs. What one division gives is kept in the cache.
"""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from jax.tree_util import Partial

from scafflix.core.digest import digest_of
from scafflix.core.errors import ScafflixError, ScafflixWarning
from scafflix.core.progress import Progress
from scafflix.core.types import Floats
from scafflix.data import Federation, from_clients, load
from scafflix.methods.method import Client, Local, Message, Method, Number, State, every_time
from scafflix.models import logistic
from scafflix.personalization.personalize import personalize
from scafflix.problems.areas import areas
from scafflix.problems.problem import Problem
from scafflix.runs.config import RunConfig, build
from scafflix.runs.runner import Runner, figure_settings
from scafflix.runs.studies import divided, kept, scored, whole_numbers
from scafflix.simulate.run import sweep

RECIPE = 1  # to be raised when the same settings give other numbers
END, BUDGET = "to the end", "as published"  # kinds of training
METRICS = {"accuracy": "accuracy", "area": "area under the ROC curve"}
Models = dict[str, Floats]  # of every client, by the line
FEWEST = 3  # rows of each class with which FLamby divides the classes apart


class Outcome(NamedTuple):
    """How the clients of a division fare with the models of a line."""

    line: str
    training: str
    division: int
    start: int  # from which random point, where it matters
    score: list[float]  # by the metric of the study, on each client's test rows
    loss: list[float]


class Line(NamedTuple):
    """A row of the table."""

    label: str
    published: list[float]  # in percent: a number, or the least and the largest
    spread: float | None  # of the published number
    ours: list[Outcome]

    def trained(self, training: str) -> list[Outcome]:
        """What we have of this training."""
        return [one for one in self.ours if one.training == training]


class Study(NamedTuple):
    """A published table, and ours."""

    title: str
    metric: str
    clients: list[str]
    lines: list[Line]


def study(
    name: str, changes: Mapping[str, str] | None = None, progress: Progress | None = None
) -> Study:
    """The study of this name; `changes` to some of its keys are for trying out."""
    settings = _changed(figure_settings("published")[name], changes or {})
    whole = load(settings["data"])
    found: list[Outcome] = []
    for division in range(settings["divisions"]):
        if progress is not None:
            progress(division, settings["divisions"], f"division {division + 1}")
        found += _kept(settings, whole, division)
    lines = [
        Line(
            one["label"],
            one.get("published", []),
            one.get("spread"),
            [outcome for outcome in found if outcome.line == one["label"]],
        )
        for one in settings["lines"]
    ]
    return Study(settings["title"], METRICS[settings["metric"]], list(whole.clients), lines)


def _changed(settings: dict[str, Any], changes: Mapping[str, str]) -> dict[str, Any]:
    """With numbers that were given as words."""
    budget = dict(settings.get("budget", {}))
    made = {**settings, "budget": budget}
    known = ("divisions", "rounds", "l2", "each", *(["starts"] if budget else []))
    for name, word in changes.items():
        if name not in known:
            raise ScafflixError(
                f"There is no key {name!r} of this study; it has {', '.join(known)}."
            )
        if name == "l2":
            made[name] = build(RunConfig, {"data": settings["data"], name: word}).l2
        elif name == "each":
            if word not in ("true", "false"):
                raise ScafflixError(f"each is {word!r}; it must be true or false.")
            made[name] = word == "true"
        else:
            (budget if name == "starts" else made)[name] = whole_numbers(name, word)[0]
    return made


def _kept(settings: Mapping[str, Any], whole: Federation, division: int) -> list[Outcome]:
    """One division, from the cache if it was made before."""
    shared = {name: value for name, value in settings.items() if name != "divisions"}
    data = digest_of(whole.train.features, whole.train.labels, whole.train.offsets)
    found = kept(
        "published",
        RECIPE,
        [shared, data, division],
        lambda: {"outcomes": [one._asdict() for one in _outcomes(settings, whole, division)]},
    )
    return [Outcome(**one) for one in found["outcomes"]]


def _outcomes(settings: Mapping[str, Any], whole: Federation, division: int) -> Iterator[Outcome]:
    federation = divided(whole, _cuts(settings, whole, division), each=settings["each"])
    problem = Problem(federation, logistic(), l2=settings["l2"])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ScafflixWarning)  # a hospital of one class is expected
        runner = Runner(problem)
        trained = {(END, 0): _to_the_end(settings, runner, division)}
        if not division:
            for start in range(settings["budget"].get("starts", 0)):
                trained[BUDGET, start] = _as_published(settings, runner, start)
    for (training, start), models in trained.items():
        losses, scores = scored(problem, list(models.values()))
        if settings["metric"] == "area":
            scores = np.array([areas(problem, one) for one in models.values()])
        for label, score, loss in zip(models, scores, losses, strict=True):
            yield Outcome(label, training, division, start, score.tolist(), loss.tolist())


def _cuts(settings: Mapping[str, Any], whole: Federation, division: int) -> list[dict[str, Any]]:
    """Rows of each client to train on and to test, with as many of each class as there are of
    all, unless a class has too few."""
    from sklearn.model_selection import train_test_split  # a second to import

    made = []
    for first, end in itertools.pairwise(whole.train.offsets):
        labels = whole.train.labels[first:end]
        _, counts = np.unique(labels, return_counts=True)
        apart = len(counts) > 1 and counts.min() >= FEWEST
        train, test = train_test_split(
            np.arange(len(labels)),
            train_size=settings["train"],
            test_size=1 - settings["train"],
            random_state=settings["first"] + division,
            stratify=labels if apart else None,
        )
        made.append({"train": train, "test": test})
    return made


def _to_the_end(settings: Mapping[str, Any], runner: Runner, division: int) -> Models:
    """Stepsizes and p by theory, from zero; what needs no rounds is solved."""
    problem = runner.problem
    asked = [one for one in settings["lines"] if "method" in one]
    configs = [_config(settings, one, settings["rounds"], division) for one in asked]
    records = runner.sweep(configs)
    made = {
        one["label"]: record.models["personal"] for one, record in zip(asked, records, strict=True)
    }
    solved = {
        one["label"]: SOLVED[one["models"]](problem) for one in settings["lines"] if "models" in one
    }
    return made | solved


def _config(
    settings: Mapping[str, Any], line: Mapping[str, Any], rounds: int, seed: int, **own: Any
) -> RunConfig:
    """The run of a line; without an alpha of its own, one model is trained for all."""
    words = {"data": settings["data"], "method": line["method"], "alpha": line.get("alpha", 1.0)}
    made: RunConfig = build(
        RunConfig, {**words, "rounds": rounds, "seed": seed, "start": "zeros", **own}
    )
    return made


def _alone(problem: Problem) -> Floats:
    """x_i* of each client."""
    return personalize(problem, 1.0).points


def _pooled(problem: Problem) -> Floats:
    """One model of all training rows, whoever has them, for everybody."""
    train = problem.federation.train
    one = Problem(from_clients({"all": (train.features, train.labels)}), logistic(), problem.l2)
    return np.tile(_alone(one), (problem.n, 1))


def _frequent(problem: Problem) -> Floats:
    """No features: the logarithm of each client's odds, as if it had half a row more of either
    class."""
    ours = problem.federation.train
    second = np.bincount(ours.owners, problem.labels["train"] > 0, minlength=problem.n)
    made = np.zeros((problem.n, *problem.shape))
    made[:, -1] = np.log((second + 0.5) / (ours.counts - second + 0.5))
    return made


SOLVED = {"alone": _alone, "pooled": _pooled, "frequent": _frequent}


def _as_published(settings: Mapping[str, Any], runner: Runner, start: int) -> Models:
    """So many rounds of so many updates with a few rows each, from a random point."""
    budget = settings["budget"]
    asked = [one for one in settings["lines"] if "budget" in one]
    members = []
    for line in asked:
        own = {name: budget[name] for name in ("p", "batch", "stepsize")} | line["budget"]
        member = runner.member(_config(settings, line, budget["rounds"], start, **own))
        members.append(member._replace(method=_with_published_rounds(member.method)))
    x0: Any = _random_point(runner.problem, start)
    records = sweep(runner.problem, members, rounds=budget["rounds"], start=x0)
    return {
        line["label"]: record.models["personal"]
        for line, record in zip(asked, records, strict=True)
    }


def _random_point(problem: Problem, seed: int) -> Floats:
    """Where PyTorch's linear layers begin: within 1 over the root of the number of features, of
    which the intercept is none."""
    bound = 1 / np.sqrt(problem.shape[0] - 1)
    return np.random.default_rng(seed).uniform(-bound, bound, problem.shape)


def _with_published_rounds(method: Method) -> Method:
    """Rounds of 1/p updates, and a mean in which a client counts by its rows; Scafflix keeps its
    own, for its control variates."""
    if method.name == "scafflix":
        return method
    upload, steps = Partial(_by_rows, method.upload), Partial(every_time, method.p)
    return replace(method, upload=upload, local_steps=steps)


def _by_rows(
    upload: Any, client: Client, state: State, sent: Any, local: Local
) -> tuple[Message, Number]:
    message, _ = upload(client, state, sent, local)
    return message, client.examples
