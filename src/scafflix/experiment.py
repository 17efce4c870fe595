"""From a configuration to records."""

from __future__ import annotations

import math
import tomllib
from contextlib import suppress
from dataclasses import replace
from importlib import resources
from typing import Any, NamedTuple

import numpy as np

from scafflix import gradients
from scafflix.building import load_data, make_method, one_run
from scafflix.checkpoint import NOWHERE, Checkpoints
from scafflix.config import (
    CompareConfig,
    ProblemConfig,
    RunConfig,
    TrainingConfig,
    plain,
)
from scafflix.engine.planning import plan
from scafflix.engine.recording import (
    Run,
    message_bits,
    predicted_iterations,
    warm_messages,
)
from scafflix.engine.run import EPSILON, start_lyapunov, sweep
from scafflix.errors import ScafflixError
from scafflix.laboratory import Laboratory
from scafflix.methods import METHODS
from scafflix.models import MODELS, NETWORKS, is_network
from scafflix.personalize import Personalization, personalize
from scafflix.problem import Problem
from scafflix.progress import Progress
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


def make_plan(problem: Problem, person: Personalization, config: TrainingConfig) -> Plan:
    """What theory advises for these gradients and this target."""
    batch = "full" if config.batch == "auto" else config.batch
    estimate = gradients.gradient(batch, config.noise)
    return plan(problem, person, gradient=estimate, epsilon=config.epsilon)


def execute(
    config: RunConfig, progress: Progress | None = None, checkpoints: Checkpoints = NOWHERE
) -> Record:
    """One run."""
    if is_network(config.model):
        return Laboratory.of(config, checkpoints).run(config, progress)
    problem = build_problem(config)
    person = personalize(problem, config.alpha)
    advice = make_plan(problem, person, config)
    method = make_method(advice, config.method, config.stepsize, config.p, config.pace)
    runs = [Run(person, method, config.seed)]
    (made,) = _sweep(problem, runs, config, progress, checkpoints)
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
    facts = {
        "clients (taking part)": f"{problem.n} ({len(person.active)})",
        "parameters": problem.size,
        **replace(advice, gamma=np.asarray(chosen.gamma), p=float(chosen.p)).facts,
        "smoothness": config.smoothness,
        "zeta": float(chosen.rate.zeta),
        "Psi at the start": float(psi[0]) * len(person.active) / problem.n,
    }
    return Forecast(epsilon, facts, rows)


def compare(
    config: CompareConfig,
    progress: Progress | None = None,
    checkpoints: Checkpoints = NOWHERE,
    scores: bool = True,
) -> list[Record]:
    """Every method at every alpha with every seed, as one sweep; networks one after another."""
    if config.seeds < 1:
        raise ScafflixError(f"seeds is {config.seeds}; it must be at least 1.")
    if not 0 < config.target < math.inf:
        raise ScafflixError(f"target is {config.target}; it must be a finite number above 0.")
    for name, values in (("methods", config.methods), ("alphas", config.alphas)):
        if len(set(map(str, values))) < len(values):
            raise ScafflixError(f"{name} names something twice: {', '.join(map(str, values))}.")
    if is_network(config.model):
        laboratory = Laboratory.of(config, checkpoints)
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
    made = _sweep(problem, runs, config, progress, checkpoints, scores)
    return [replace(one, config=plain(chosen)) for one, chosen in zip(made, asked, strict=True)]


def _runs(config: CompareConfig) -> list[RunConfig]:
    """Every method at every alpha with every seed."""
    return [
        one_run(config, method=name, stepsize=stepsize or "auto", alpha=alpha, seed=seed)
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


def _sweep(
    problem: Problem,
    runs: list[Run],
    config: TrainingConfig,
    progress: Progress | None,
    checkpoints: Checkpoints,
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
        checkpoints=checkpoints,
    )
