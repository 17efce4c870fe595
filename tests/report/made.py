"""Records of the kinds that there are: real ones of small runs, and large ones made of numbers."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np

from scafflix.personalization.rules import blending, choosing
from scafflix.personalization.rules.contract import GRID, Evidence
from scafflix.record import Record
from scafflix.runs import runner
from scafflix.runs.config import CompareConfig, RunConfig, plain
from scafflix.simulate.taking_part import gained

IRIS: dict[str, Any] = {
    "data": "iris",
    "clients": 5,
    "split": "shuffled",
    "scale": "standard",
    "test": 0.3,
    "validation": 0.2,
}
VERSIONS = {"scafflix": "0"}


@cache
def convex() -> list[Record]:
    """A method with a guarantee and one without, at two alphas, with two seeds."""
    config = CompareConfig(
        **IRIS,
        model="softmax",
        l2=0.05,
        methods=("scafflix", "fedavg"),
        alphas=(1.0, 0.2),
        seeds=2,
        rounds=40,
    )
    return runner.compare(config)


@cache
def own_models() -> list[Record]:
    """A method whose clients have models of their own, and one without."""
    config = CompareConfig(
        **IRIS, model="softmax", l2=0.05, methods=("mr_mtl", "fedavg"), alphas=(1.0,), rounds=10
    )
    return runner.compare(config)


@cache
def network() -> Record:
    """One network, looked at every other round."""
    return runner.execute(
        RunConfig(**IRIS, model="dense", alpha=0.5, rounds=6, every=2, optima_steps=20, batch=5)
    )


def deployment(rounds: int = 30, clients: int = 4) -> Record:
    """What a federation's server knows: an objective, no gap, and only its own model."""
    random = np.random.default_rng(1)
    number = np.arange(rounds + 1)
    steps = np.r_[0, random.geometric(0.2, rounds)]
    config = {**plain(RunConfig(data="hospitals", alpha=0.5, rounds=rounds)), "patience": 60.0}
    summary = {
        "method": "scafflix",
        "n_clients": clients,
        "n_active": clients,
        "dim": 14,
        "rounds": rounds,
        "iterations": int(steps.sum()),
        "final_objective": 0.31,
        "final_objective_clients": clients,
        "refused": 1,
        "dropped": 2,
        "seconds": 21.5,
        "versions": VERSIONS,
    }
    metrics = {
        "round": number,
        "iterations": np.cumsum(steps),
        "local_steps": steps,
        "objective": 0.3 + np.exp(-number / 5),
        "replies": np.full(rounds + 1, clients),
        "refused": np.zeros(rounds + 1, int),
        "bits_up": number * clients * 14 * 64,
        "bits_down": number * clients * 14 * 64,
    }
    table = {
        "client": np.array([f"hospital {i}" for i in range(clients)]),
        "train_examples": np.arange(10, 10 + clients),
        "alpha": np.full(clients, 0.5),
        "gamma": np.linspace(0.1, 0.4, clients),
        "rounds": np.full(clients, rounds),
        "refused": np.zeros(clients, int),
        "loss_personal": np.linspace(0.2, 0.4, clients),
        "score_personal": np.linspace(0.7, 0.9, clients),
    }
    return Record(config, summary, metrics, table, {})


def numbers(
    method: str = "scafflix",
    alpha: float = 0.5,
    seed: int = 0,
    *,
    clients: int = 30,
    rounds: int = 50,
    **asked: Any,
) -> Record:
    """A record of a convex run in shape, with random numbers in it."""
    random = np.random.default_rng([seed, int(100 * alpha), len(method)])
    number = np.arange(rounds + 1)
    steps = np.r_[0, random.geometric(0.2, rounds)]
    gap = np.exp(-20 * number / rounds + 0.3 * random.normal(size=rounds + 1))
    metrics = {
        "round": number,
        "iterations": np.cumsum(steps),
        "local_steps": steps,
        "objective_gap": gap,
        "grad_norm_sq": gap**1.1,
        "lyapunov": 3 * gap,
        "lyapunov_bound": 4 * gap,
        "bits_up": number * clients * 64,
        "bits_down": number * clients * 64,
    }
    constant = np.random.default_rng(0)
    table: dict[str, Any] = {
        "client": np.array([f"writer-{i:04}" for i in range(clients)]),
        "train_examples": constant.integers(20, 400, clients),
        "validation_examples": np.zeros(clients, int),
        "test_examples": constant.integers(2, 40, clients),
        "L": constant.lognormal(1, 1, clients),
        "kappa": constant.lognormal(4, 1, clients),
        "local_grad_norm": 1e-15 * constant.random(clients),
        "test_local": constant.beta(8, 2, clients),
        "alpha": np.full(clients, alpha),
        "gamma": random.lognormal(size=clients),
        "test_global": random.beta(8, 2, clients),
        "test_personal": random.beta(9, 2, clients),
    }
    certificate = {"holds": True, "worst_ratio": 0.75, "worst_round": 1, "rounds_checked": rounds}
    summary = {
        "method": method,
        "n_clients": clients,
        "n_active": clients,
        "dim": 640,
        "rounds": rounds,
        "iterations": int(steps.sum()),
        "final_gap": gap[-1],
        "certificate": {**certificate, "chance": 1.0},
        "seconds": 12.5,
        "metric": "accuracy",
        "versions": VERSIONS,
    }
    settings = {"method": method, "alpha": alpha, "seed": seed, "rounds": rounds, **asked}
    return Record(plain(RunConfig(**{"data": "writers", **settings})), summary, metrics, table, {})


def chosen(clients: int = 30, **asked: Any) -> Record:
    """The same, with alphas that the rule took from random curves; the first client knows none."""
    record, random = numbers(alpha=1.0, clients=clients, **asked), np.random.default_rng(3)
    noise, distance = random.gamma(2.0, 0.1, (2, clients, 1))
    curves = 0.5 + (1 - GRID) ** 2 * noise + GRID**2 * distance
    curves[0] = np.nan
    examples = record.clients["train_examples"].astype(float)
    evidence = Evidence(curves, examples, GRID / np.sqrt(examples)[:, None])
    note = np.where(evidence.known, "", choosing.LOO.ignorant)
    made = choosing.choice(
        "loo", evidence, blending.blended_with(evidence, blending.told(evidence)), note
    )
    local = random.gamma(4.0, 0.1, clients)
    table = {
        **record.clients,
        "alpha": made.alpha,
        "alpha_note": note,
        "expected_gain": made.gain,
        "test_loss_local": local,
        "test_loss_global": local + random.normal(0, 0.2, clients),
        "test_loss_personal": local - made.gain + random.normal(0, 0.05, clients),
    }
    alpha = {
        "rule": "loo",
        "trained_at": 1.0,
        "mean": float(made.alpha.mean()),
        "expected_gain": float(made.gain.mean()),
        "notes": {choosing.LOO.ignorant: 1},
    }
    return replace(
        record,
        config={**record.config, "alpha": "auto"},
        summary={**record.summary, "alpha": alpha, "taking_part": gained(table)},
        clients=table,
        curves=made.curves,
    )
