"""What theory predicts for every method that has a guarantee, without running any."""

from __future__ import annotations

import math
import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, NamedTuple

import jax
import numpy as np

from scafflix.core.errors import ScafflixError
from scafflix.core.precision import in_float64
from scafflix.core.specs import read, written
from scafflix.core.vector import names_of
from scafflix.methods import METHODS, Method, parameters
from scafflix.methods.private import ready
from scafflix.models import is_network
from scafflix.privacy import Limit
from scafflix.problems.losses import Losses
from scafflix.problems.problem import Problem
from scafflix.runs import refusals
from scafflix.runs.assembly import make_method, private_method, resolve, rounds_of
from scafflix.runs.config import RunConfig
from scafflix.runs.costs import Costs
from scafflix.runs.runner import Runner
from scafflix.simulate.accounting import Account, is_private
from scafflix.simulate.bits import message_bits, warm_messages
from scafflix.simulate.recording import Run, predicted_iterations
from scafflix.simulate.run import EPSILON
from scafflix.simulate.together import start_lyapunov
from scafflix.theory import Plan

TIMES = 20  # that a gradient is timed
SHARES = (0.5, 0.2, 0.1, 0.05, 0.02, 0.01)  # of the numbers of a model that rand-k sends


class Prediction(NamedTuple):
    """One method; None where its guarantee does not get to the target."""

    method: str  # with options
    p: float
    zeta: float
    iterations: int | None
    rounds: int | None
    megabytes: float | None  # of all clients, up and down
    cohort: int  # clients a round
    bits: tuple[int, int]  # of a client in a round, up and down
    seconds: float | None = None  # where costs are known


class Forecast(NamedTuple):
    """What a plan says."""

    epsilon: float
    facts: dict[str, Any]
    methods: list[Prediction]  # the chosen one first; with costs the quickest first
    tried: list[Prediction]  # with costs: every method with all options that were compared


def forecast(config: RunConfig, costs: Costs | None = None) -> Forecast:
    """For the chosen method and for its rivals; with costs, each with the options, and with as
    many clients a round if that is left open, that make the predicted time least."""
    if is_network(config.model):
        raise ScafflixError(
            f"There is no theory for networks, so there is nothing to plan for {config.model}."
        )
    refusals.check_keys(config)
    runner = Runner.of(config)
    runner.check(config)
    config, problem = resolve(config), runner.problem
    person = runner.person(config)
    noise = runner.noise(config, person)
    advice = runner.plan(config, person, noise)
    chosen = private_method(make_method(advice, config), config, noise)
    everybody = len(person.active)
    sizes = [config.cohort or everybody]
    if costs is not None and config.cohort is None:
        sizes = [everybody // 2**k for k in range(1 + int(math.log2(max(1, everybody))))]
    asked = [Candidate(config.method, chosen, sizes[0])]
    asked += _rivals(advice, config.method, sizes, costs is not None)
    epsilon = config.epsilon or EPSILON
    methods = [one.method for one in asked]
    psi = start_lyapunov(problem, person, methods, start=config.start, h0=config.h0)
    found = []
    for (name, method, cohort), psi0 in zip(asked, psi, strict=True):
        member = Run(person, method)
        spoken_of = method.rate.covers(cohort, everybody)
        iterations = predicted_iterations(problem, member, psi0, epsilon) if spoken_of else None
        rounds = None if iterations is None else math.ceil(iterations * method.p)
        bits = message_bits(method, problem.template, cohort)
        trips = None if rounds is None else rounds + warm_messages(method, config.h0)
        megabytes = None if trips is None else trips * sum(bits) * cohort / 8e6
        zeta = float(method.rate.zeta)
        one = Prediction(name, float(method.p), zeta, iterations, rounds, megabytes, cohort, bits)
        if costs is not None and iterations is not None:
            one = one._replace(seconds=float(costs.seconds(iterations, trips, *bits)))
        found.append(one)
    facts = {
        "clients (taking part)": f"{problem.n} ({everybody})",
        "clients a round": sizes[0],
        "parameters": problem.size,
        **replace(advice, gamma=np.asarray(chosen.gamma), p=float(chosen.p)).facts,
        "smoothness": config.smoothness,
        "zeta": float(chosen.rate.zeta),
        "Psi at the start": float(psi[0]) * len(person.active) / problem.n,
        **_privacy(problem, Run(person, chosen, config.seed), config),
    }
    return Forecast(epsilon, facts, _quickest(found) if costs is not None else found, found)


def _privacy(problem: Problem, member: Run, config: RunConfig) -> dict[str, Any]:
    """What the rounds asked for would spend, and how large an error the noise leaves."""
    if not is_private(member.method):
        return {}
    limit = Limit(config.delta, config.budget)
    method = ready(member.method, names_of(problem.template))
    rounds = rounds_of(config)
    account = Account(problem, member._replace(method=method), config.cohort, rounds, limit)
    made = {
        "noise multiplier": account.noise,
        f"epsilon after {rounds} rounds (delta {account.delta:g})": account.worst(rounds),
    }
    ball = float(member.method.rate.noise)
    if account.unit == "example" and math.isfinite(ball):
        made["Psi that the noise leaves, at most"] = ball
    return made


class Candidate(NamedTuple):
    """A method with options, and how many clients it asks in a round."""

    name: str
    method: Method
    cohort: int


def _rivals(advice: Plan, chosen: str, sizes: Sequence[int], compare: bool) -> Iterator[Candidate]:
    """Every other method in rounds of all clients, or of those asked for; to compare, with several
    options, and in smaller rounds where a guarantee speaks of those."""
    for name, make in METHODS.items():
        planned = "cohort" in parameters(make)
        for cohort in sizes:
            for given in _options(parameters(make), cohort) if compare else [{}]:
                options = {**given, "cohort": cohort} if planned else given
                with suppress(ScafflixError):  # a method that does not take these gradients
                    one = Candidate(written(name, given), make(advice, **options), cohort)
                    speaks = cohort == sizes[0] or one.method.rate.covers(cohort, advice.n)
                    if speaks and (one.name, cohort) != (chosen, sizes[0]):
                        yield one


def _options(known: Collection[str], cohort: int) -> Iterator[dict[str, Any]]:
    """The options of a method that are compared for rounds of so many clients."""
    yield {}
    if "s" in known:
        yield from ({"s": 2**k} for k in range(2, 1 + int(math.log2(cohort))))
    if "compressor" in known:
        yield from ({"compressor": f"rand_k:{share:g}"} for share in SHARES)


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
