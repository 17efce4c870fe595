"""What theory predicts for every method that has a guarantee, without running any."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from typing import Any, NamedTuple

import jax
import numpy as np

from scafflix.core.errors import ScafflixError
from scafflix.core.precision import in_float64
from scafflix.core.specs import read, written
from scafflix.methods import METHODS, Method, parameters
from scafflix.models import is_network
from scafflix.problems.losses import Losses
from scafflix.problems.problem import Problem
from scafflix.runs import refusals
from scafflix.runs.assembly import make_method, resolve
from scafflix.runs.config import RunConfig
from scafflix.runs.costs import Costs
from scafflix.runs.runner import Runner
from scafflix.simulate.bits import message_bits, warm_messages
from scafflix.simulate.recording import Run, predicted_iterations
from scafflix.simulate.run import EPSILON, start_lyapunov
from scafflix.theory import Plan

TIMES = 20  # that a gradient is timed


class Prediction(NamedTuple):
    """One method; None where its guarantee does not get to the target."""

    method: str  # with options
    p: float
    zeta: float
    iterations: int | None
    rounds: int | None
    megabytes: float | None  # of all clients, up and down
    bits: tuple[int, int]  # of a client in a round, up and down
    seconds: float | None = None  # where costs are known


class Forecast(NamedTuple):
    """What a plan says."""

    epsilon: float
    facts: dict[str, Any]
    methods: list[Prediction]  # the chosen one first; with costs the quickest first
    tried: list[Prediction]  # with costs: every method with all options that were compared


def forecast(config: RunConfig, costs: Costs | None = None) -> Forecast:
    """For the chosen method and for its rivals; with costs, each with the options that make the
    predicted time least."""
    if is_network(config.model):
        raise ScafflixError(
            f"There is no theory for networks, so there is nothing to plan for {config.model}."
        )
    refusals.check_keys(config)
    runner = Runner.of(config)
    runner.check(config)
    config, problem = resolve(config), runner.problem
    person = runner.person(config)
    advice = runner.plan(config, person)
    chosen = make_method(advice, config)
    cohort = config.cohort or len(person.active)
    largest = cohort if costs is not None else None
    asked = {config.method: chosen} | dict(_rivals(advice, config.method, largest))
    epsilon = config.epsilon or EPSILON
    runs = [Run(person, method) for method in asked.values()]
    psi = start_lyapunov(problem, person, [*asked.values()], start=config.start, h0=config.h0)
    found = []
    for name, member, psi0 in zip(asked, runs, psi, strict=True):
        method = member.method
        spoken_of = cohort == len(person.active) or method.rate.sampled
        iterations = predicted_iterations(problem, member, psi0, epsilon) if spoken_of else None
        rounds = None if iterations is None else math.ceil(iterations * method.p)
        bits = message_bits(method, problem.template, cohort)
        trips = None if rounds is None else rounds + warm_messages(method, config.h0)
        megabytes = None if trips is None else trips * sum(bits) * cohort / 8e6
        zeta = float(method.rate.zeta)
        one = Prediction(name, float(method.p), zeta, iterations, rounds, megabytes, bits)
        if costs is not None and iterations is not None:
            one = one._replace(seconds=float(costs.seconds(iterations, trips, *bits)))
        found.append(one)
    facts = {
        "clients (taking part)": f"{problem.n} ({len(person.active)})",
        "clients a round": cohort,
        "parameters": problem.size,
        **replace(advice, gamma=np.asarray(chosen.gamma), p=float(chosen.p)).facts,
        "smoothness": config.smoothness,
        "zeta": float(chosen.rate.zeta),
        "Psi at the start": float(psi[0]) * len(person.active) / problem.n,
    }
    return Forecast(epsilon, facts, _quickest(found) if costs is not None else found, found)


def _rivals(advice: Plan, chosen: str, largest: int | None) -> Iterator[tuple[str, Method]]:
    """Every other method, and where options are compared, with s up to the largest."""
    for name, make in METHODS.items():
        tried: list[dict[str, Any]] = [{}]
        if largest and "s" in parameters(make):
            tried += [{"s": 2**k} for k in range(2, 1 + int(math.log2(largest)))]
        for given in tried:
            with suppress(ScafflixError):  # a method that does not take these gradients
                method = make(advice, **given)
                if written(name, given) != chosen:
                    yield written(name, given), method


def _quickest(found: list[Prediction]) -> list[Prediction]:
    """Each method once, with its best options, the quickest first; then those without a
    guarantee."""
    best: dict[str, Prediction] = {}
    for one in sorted(found, key=lambda one: math.inf if one.seconds is None else one.seconds):
        best.setdefault(read(one.method).name, one)
    return list(best.values())


@in_float64
def time_of_gradient(problem: Problem) -> float:
    """Seconds that the gradient of the client with the most examples takes on this machine."""
    largest = np.array([int(np.argmax(problem.federation.train.counts))])
    losses = problem.take(largest).losses
    gradient, x = jax.jit(Losses.gradients), np.zeros((1, 1, *problem.shape))
    jax.block_until_ready(gradient(losses, x))
    times = []
    for _ in range(TIMES):
        began = time.perf_counter()
        jax.block_until_ready(gradient(losses, x))
        times.append(time.perf_counter() - began)
    return float(np.median(times))
