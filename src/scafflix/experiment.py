"""From a configuration to records."""

from __future__ import annotations

import math
import tomllib
from contextlib import suppress
from dataclasses import fields, replace
from importlib import resources
from typing import Any, NamedTuple

import numpy as np

from scafflix import data, gradients
from scafflix.cohorts.laboratory import Laboratory
from scafflix.config import (
    CompareConfig,
    ProblemConfig,
    RunConfig,
    TrainingConfig,
    build,
    plain,
)
from scafflix.data import Federation
from scafflix.engine.planning import plan
from scafflix.engine.recording import (
    Run,
    message_bits,
    predicted_iterations,
    warm_messages,
)
from scafflix.engine.run import EPSILON, Progress, start_lyapunov, sweep
from scafflix.errors import ScafflixError
from scafflix.methods import METHODS, PACED, Method
from scafflix.models import MODELS, NETWORKS, is_network
from scafflix.personalize import Personalization, personalize
from scafflix.problem import Problem
from scafflix.record import Record
from scafflix.theory import Plan

L2 = 0.1  # of linear models, unless another is given


def build_problem(config: ProblemConfig) -> Problem:
    """Load the data and put the model on it."""
    if config.model not in MODELS:
        raise ScafflixError(
            f"model is {config.model!r}; it must be one of {', '.join((*MODELS, *NETWORKS))}."
        )
    l2 = L2 if config.l2 is None else config.l2
    return Problem(load_data(config), MODELS[config.model](), l2, config.smoothness)


def load_data(config: ProblemConfig) -> Federation:
    """The federation that the configuration names."""
    return data.load(
        config.data,
        clients=config.clients,
        split=config.split,
        test=config.test or 0.0,
        validation=config.validation or 0.0,
        min_examples=config.min_examples,
        seed=config.data_seed,
        features=config.features,
        label=config.label,
        intercept=config.intercept,
        scale=config.scale,
    )


def make_plan(problem: Problem, person: Personalization, config: TrainingConfig) -> Plan:
    """What theory advises for these gradients and this target."""
    batch = "full" if config.batch == "auto" else config.batch
    estimate = gradients.gradient(batch, config.noise)
    return plan(problem, person, gradient=estimate, epsilon=config.epsilon)


def make_method(advice: Plan, name: str, stepsize: Any, p: Any, pace: str = "auto") -> Method:
    """A method by name, with `auto`, `common` or given stepsizes and `auto` or given p."""
    if name not in METHODS:
        raise ScafflixError(f"method is {name!r}; it must be one of {', '.join(METHODS)}.")
    steps: Any = None if stepsize == "auto" else stepsize
    if stepsize == "common":
        if name != "scafflix":
            raise ScafflixError(f"stepsize common goes with scafflix; for {name} use auto.")
        steps = advice.gamma.min()
    if isinstance(steps, str):
        raise ScafflixError(f"stepsize is {stepsize!r}; it must be auto, common or a number.")
    probability = None if p == "auto" else p
    if isinstance(probability, str):
        raise ScafflixError(f"p is {p!r}; it must be auto or a number in (0, 1].")
    options = {"pace": pace} if name in PACED and pace != "auto" else {}
    return METHODS[name](advice, stepsize=steps, p=probability, **options)


def execute(config: RunConfig, progress: Progress | None = None) -> Record:
    """One run."""
    if is_network(config.model):
        return Laboratory.of(config).run(config, progress)
    problem = build_problem(config)
    person = personalize(problem, config.alpha)
    advice = make_plan(problem, person, config)
    method = make_method(advice, config.method, config.stepsize, config.p, config.pace)
    (made,) = _sweep(problem, [Run(person, method, config.seed)], config, progress)
    return replace(made, config=plain(config))


class Forecast(NamedTuple):
    """What a plan says."""

    epsilon: float
    facts: dict[str, Any]
    methods: list[tuple[Any, ...]]  # name, p, zeta, iterations, rounds, megabytes


def forecast(config: RunConfig) -> Forecast:
    """What theory predicts for the chosen method and for its rivals, without running any."""
    if is_network(config.model):
        raise ScafflixError(f"There is no theory for the network {config.model} to plan with.")
    problem = build_problem(config)
    person = personalize(problem, config.alpha)
    advice = make_plan(problem, person, config)
    chosen = make_method(advice, config.method, config.stepsize, config.p, config.pace)
    rivals = []
    for name in METHODS:
        with suppress(ScafflixError):  # a method that does not take these gradients
            rivals.append(METHODS[name](advice))
    rivals = [method for method in rivals if method.name != config.method]
    epsilon = config.epsilon or EPSILON
    runs = [Run(person, method) for method in (chosen, *rivals)]
    psi = start_lyapunov(problem, runs, start=config.start, h0=config.h0)
    rows = []
    for member, psi0 in zip(runs, psi, strict=True):
        method = member.method
        iterations = predicted_iterations(problem, member, psi0, epsilon)
        rounds = None if iterations is None else math.ceil(iterations * method.p)
        bits = sum(message_bits(method, problem.template)) * len(person.active)
        trips = None if rounds is None else rounds + warm_messages(method, config.h0)
        megabytes = None if trips is None else trips * bits / 8e6
        rows.append((method.name, method.p, method.rate.zeta, iterations, rounds, megabytes))
    constants = advice.constants
    facts = {
        "clients (taking part)": f"{problem.n} ({len(person.active)})",
        "parameters": problem.size,
        "L_i": f"{constants.L.min():.4g} to {constants.L.max():.4g} ({config.smoothness})",
        "mu_i": f"{constants.mu.min():.4g} to {constants.mu.max():.4g}",
        "kappa_max": float(constants.kappa.max()),
        "A_i": f"{advice.A.min():.4g} to {advice.A.max():.4g}",
        "C_i": f"{advice.C.min():.4g} to {advice.C.max():.4g}",
        "gamma_i": f"{np.min(chosen.gamma):.4g} to {np.max(chosen.gamma):.4g}",
        "p": float(chosen.p),
        "local steps per round": 1 / float(chosen.p),
        "zeta": float(chosen.rate.zeta),
        "Psi at the start": float(psi[0]) * len(person.active) / problem.n,
    }
    return Forecast(epsilon, facts, rows)


def compare(
    config: CompareConfig, progress: Progress | None = None, scores: bool = True
) -> list[Record]:
    """Every method at every alpha with every seed, as one sweep; networks one after another."""
    if config.seeds < 1:
        raise ScafflixError(f"seeds is {config.seeds}; it must be at least 1.")
    for name, values in (("methods", config.methods), ("alphas", config.alphas)):
        if len(set(map(str, values))) < len(values):
            raise ScafflixError(f"{name} names something twice: {', '.join(map(str, values))}.")
    if is_network(config.model):
        laboratory = Laboratory.of(config)
        asked = _runs(config)
        return [
            laboratory.run(replace(one, keep="none"), progress and part_of(progress, k, len(asked)))
            for k, one in enumerate(asked)
        ]
    problem = build_problem(config)
    local = personalize(problem, 1.0)
    persons = {str(alpha): local.at(alpha) for alpha in config.alphas}
    advice = {key: make_plan(problem, person, config) for key, person in persons.items()}
    runs, asked = [], _runs(config)
    for one in asked:
        key = str(one.alpha)
        method = make_method(advice[key], one.method, one.stepsize, one.p, one.pace)
        runs.append(Run(persons[key], method, one.seed))
    made = _sweep(problem, runs, config, progress, scores)
    return [replace(one, config=plain(chosen)) for one, chosen in zip(made, asked, strict=True)]


def _runs(config: CompareConfig) -> list[RunConfig]:
    """Every method at every alpha with every seed."""
    return [
        replace(_one_run(config, name, stepsize or "auto", alpha), seed=seed)
        for alpha in config.alphas
        for name, _, stepsize in (spec.partition(":") for spec in config.methods)
        for seed in range(config.seeds)
    ]


def part_of(progress: Progress, number: int, total: int) -> Progress:
    """The progress of one of several runs."""
    return lambda done, rounds, state: progress(number * rounds + done, total * rounds, state)


def figure_settings(name: str) -> dict[str, Any]:
    """The settings of one of the paper's figures, or of the demonstration."""
    text = resources.files("scafflix.experiments").joinpath(f"{name}.toml").read_text()
    return tomllib.loads(text)


def _one_run(config: CompareConfig, method: str, stepsize: str, alpha: Any) -> RunConfig:
    shared = {
        entry.name: getattr(config, entry.name)
        for entry in fields(TrainingConfig)
        if getattr(config, entry.name) is not None
    }
    chosen: RunConfig = build(
        RunConfig, {**shared, "method": method, "stepsize": stepsize, "alpha": alpha}
    )
    return chosen


def _sweep(
    problem: Problem,
    runs: list[Run],
    config: TrainingConfig,
    progress: Progress | None,
    scores: bool = True,
) -> list[Record]:
    return sweep(
        problem,
        runs,
        rounds=config.rounds,
        start=config.start,
        h0=config.h0,
        epsilon=config.epsilon,
        strict=config.strict,
        scores=scores,
        part=config.part,
        progress=progress,
    )
