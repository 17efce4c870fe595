"""From what a run measured to the record of it."""

from __future__ import annotations

import math
import os
import platform
import subprocess
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from scafflix import theory
from scafflix.data import Federation
from scafflix.flix import Optimum
from scafflix.gradients import Exact
from scafflix.methods.method import Client, Method
from scafflix.personalize import Personalization
from scafflix.problem import Floats, Losses, Problem
from scafflix.record import Record
from scafflix.vector import Vector

KINDS = ("local", "global", "personal")


class Run(NamedTuple):
    """A method with a personalization and a seed: one member of a sweep."""

    person: Personalization
    method: Method
    seed: int = 0


class Outcome(NamedTuple):
    """What a run measured: the first entry is the start, then one a round."""

    x: Floats  # the global model, [*shape]
    objective_gap: Floats
    grad_norm_sq: Floats
    lyapunov: Floats
    local_steps: NDArray[np.int64]
    optimum: Optimum | None  # None where nobody takes part
    message_bits: tuple[int, int]  # that a client sends and receives in a communication
    first_messages: int  # communications before the first round
    timing: dict[str, float]


def record(
    problem: Problem,
    member: Run,
    outcome: Outcome,
    epsilon: float,
    scores: bool = True,
    part: str = "test",
) -> Record:
    """The record of one run; means are over all clients, also those that do not take part.

    A run that looks at validation data leaves the test data alone.
    """
    metrics, certificate = _metrics(problem, member, outcome)
    person = member.person
    models = {
        "global": outcome.x,
        "local": np.asarray(person.x_star),
        "personal": np.asarray(person.mix(jnp.asarray(outcome.x))),
    }
    summary = _summary(problem, member, outcome, metrics, certificate, epsilon)
    clients = _clients(problem, member, models, scores, part)
    return Record(_asked(problem, member, metrics), summary, metrics, clients, models)


def _asked(problem: Problem, member: Run, metrics: dict[str, NDArray[Any]]) -> dict[str, Any]:
    """As much of a configuration as is known without one."""
    alpha = member.person.alpha
    return {
        "data": problem.federation.name,
        "model": problem.model.name,
        "l2": problem.l2,
        "smoothness": problem.smoothness,
        "method": member.method.name,
        "alpha": float(alpha[0]) if (alpha == alpha[0]).all() else alpha.tolist(),
        "rounds": len(metrics["round"]) - 1,
        "seed": member.seed,
    }


def _metrics(
    problem: Problem, member: Run, outcome: Outcome
) -> tuple[dict[str, NDArray[Any]], theory.Certificate | None]:
    method, n = member.method, len(member.person.active)
    share = n / problem.n
    iterations = np.cumsum(outcome.local_steps)
    bound = share * method.rate.bound(iterations, outcome.lyapunov[0])
    rounds = np.arange(len(iterations))
    up, down = outcome.message_bits
    messages = n * (rounds + outcome.first_messages)
    metrics = {
        "round": rounds,
        "iterations": iterations,
        "local_steps": outcome.local_steps,
        "objective_gap": share * outcome.objective_gap,
        "grad_norm_sq": share**2 * outcome.grad_norm_sq,
        "lyapunov": share * outcome.lyapunov,
        "lyapunov_bound": bound,
        "bits_up": messages * up,
        "bits_down": messages * down,
    }
    if outcome.optimum is None:
        return metrics, None
    floor = theory.rounding_floor(
        np.asarray(member.person.take(member.person.active).mix(outcome.optimum.x)),
        np.asarray(outcome.optimum.h),
        np.asarray(method.gamma),
        problem.constants.mu[member.person.active],
        float(method.p),
    )
    exact = isinstance(method.gradient, Exact)
    psi = metrics["lyapunov"]
    return metrics, theory.certify(psi[1:], bound[1:], share * floor, exact)


def _summary(
    problem: Problem,
    member: Run,
    outcome: Outcome,
    metrics: dict[str, NDArray[Any]],
    certificate: theory.Certificate | None,
    epsilon: float,
) -> dict[str, Any]:
    method, active = member.method, member.person.active
    n = len(active)
    iterations = predicted_iterations(problem, member, outcome.lyapunov[0], epsilon)
    return {
        "method": method.name,
        "n_clients": problem.n,
        "n_active": n,
        "dim": problem.size,
        "seed": member.seed,
        "p": float(method.p),
        "zeta": float(method.rate.zeta),
        "kappa_max": problem.constants.kappa[active].max() if n else None,
        "gamma_min": np.min(method.gamma) if n else None,
        "gamma_max": np.max(method.gamma) if n else None,
        "rounds": int(metrics["round"][-1]),
        "iterations": int(metrics["iterations"][-1]),
        "final_gap": metrics["objective_gap"][-1],
        "epsilon": epsilon,
        "predicted_rounds": None if iterations is None else math.ceil(iterations * method.p),
        "certificate": None if certificate is None else certificate._asdict(),
        **outcome.timing,
        "local_optima_grad_norm": member.person.gradient_norm.max(),
        "optimum_grad_norm": outcome.optimum and float(outcome.optimum.gradient_norm),
        "metric": problem.model.metric,
        "classes": list(problem.targets.classes),
        "versions": versions(),
    }


def predicted_iterations(problem: Problem, member: Run, psi0: float, epsilon: float) -> int | None:
    """When theory promises E Psi <= epsilon, with psi0 over the clients that take part."""
    share = len(member.person.active) / problem.n
    return member.method.rate.iterations(float(psi0), epsilon / share) if share else 0


def _clients(
    problem: Problem, member: Run, models: dict[str, Floats], scores: bool, part: str
) -> dict[str, NDArray[Any]]:
    """The table of clients; those that do not take part have no stepsize."""
    person = member.person
    gamma = np.full(problem.n, np.nan)
    if len(person.active):
        gamma[person.active] = member.method.gamma
    table: dict[str, NDArray[Any]] = {
        "client": np.array(problem.federation.clients),
        **example_counts(problem.federation),
        "alpha": person.alpha,
        "gamma": gamma,
        "L": problem.constants.L,
        "mu": problem.constants.mu,
        "kappa": problem.constants.kappa,
        "local_grad_norm": person.gradient_norm,
    }
    looked_at = {"train": problem.losses, **problem.held_out}
    if part != "test":
        looked_at.pop("test", None)
    if scores:
        points = jnp.stack([jnp.broadcast_to(models[k], models["local"].shape) for k in KINDS])
        for name, losses in looked_at.items():
            per_kind = np.asarray(_scores(losses, points))
            table |= {f"{name}_{k}": v for k, v in zip(KINDS, per_kind, strict=True)}
    return table


def example_counts(federation: Federation) -> dict[str, NDArray[np.int64]]:
    """How many examples each client has in each part."""
    none = np.zeros(len(federation.clients), np.int64)
    return {
        f"{name}_examples": federation.parts[name].counts if name in federation.parts else none
        for name in ("train", "validation", "test")
    }


_scores = jax.jit(Losses.scores)


def message_bits(method: Method, template: Any) -> tuple[int, int]:
    """Bits that one client sends and receives in one communication, counted on the messages
    themselves for a model of the template's shapes and types; weights and numbers of local steps,
    a few scalars, are left out."""

    def exchange(x: Any) -> tuple[Any, Any]:
        client, point = Client(1.0, 1.0), Vector(x)
        state = method.init_client(client, point, point)
        message, _ = method.upload(client, state, point)
        return message, method.broadcast(method.init_server(point))

    sent, received = jax.eval_shape(exchange, template)

    def bits(tree: Any) -> int:
        return sum(8 * leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(tree))

    return bits(sent), bits(received)


def warm_messages(method: Method, h0: object) -> int:
    """Communications before the first round: one to project warm control variates, in a method
    that remembers any."""
    state = method.init_client(Client(1.0, 1.0), 0.0, 0.0)
    return int(isinstance(h0, str) and h0 == "warm" and bool(jax.tree.leaves(state)))


@cache
def versions() -> dict[str, str]:
    """What made the record."""
    packages = {name: version(name) for name in ("scafflix", "jax", "jaxlib", "numpy")}
    machine = f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores"
    python = platform.python_version()
    return {**packages, "commit": _commit(), "python": python, "machine": machine}


def _commit() -> str:
    """Of the sources, where they are a clone; with a mark if files have changed since."""
    root = Path(__file__).parents[3]
    if not (root / ".git").exists():
        return "none"
    command = ["git", "-C", str(root), "describe", "--always", "--dirty", "--abbrev=40"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
