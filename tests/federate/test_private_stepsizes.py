"""A number as stepsize means the same in a private federation as in its simulation."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("flwr", reason="Flower is not installed; pip install 'scafflix[flower]'")
pytest.importorskip("dp_accounting", reason="no accountant; pip install 'scafflix[privacy]'")

from numpy.typing import NDArray
from private_federations import KEYS, Seeded, deployed, simulated

import scafflix as sx
from scafflix import theory
from scafflix.federate import convex, privacy
from scafflix.federate.configuration import DeployConfig
from scafflix.gradients import Exact
from scafflix.methods import METHODS
from scafflix.problems.constants import Constants
from scafflix.runs.assembly import for_method, make_method
from scafflix.runs.runner import Runner


def quiet(shape: tuple[int, ...]) -> NDArray[np.float64]:
    return np.zeros(shape)


@pytest.mark.parametrize("method", ["scafflix", "fedavg", "gd"])
def test_of_clients_that_mix(method: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Their noise is nobody else's, so both sides go without it."""
    monkeypatch.setattr(privacy, "secret_normals", quiet)
    keys = {**KEYS, "privacy": "client", "alpha": 0.5, "method": method, "clip": 0.2}
    keys |= {} if method != "gd" else {"p": "auto"}
    made, _, _ = deployed(tmp_path, **keys)
    config = DeployConfig(**keys)
    runner = Runner.of(config)
    person = runner.person(config)
    inner = METHODS[method](sx.plan(runner.problem, person), stepsize=0.1, **own(method))
    expected = sx.run(
        runner.problem, person, sx.private(inner, 0.2, 0.0), rounds=8, seed=3, delta=1e-4
    )
    for name, mine in made.models.items():
        np.testing.assert_allclose(mine, expected.models[name], rtol=0, atol=1e-12)


def own(method: str) -> dict[str, float]:
    return {} if method == "gd" else {"p": 0.5}


def test_of_examples(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(convex, "Secret", Seeded)
    made, _, _ = deployed(tmp_path, method="fedavg")
    expected = simulated(method="fedavg")
    for name, mine in made.models.items():
        np.testing.assert_allclose(mine, expected.models[name], rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", sorted(set(METHODS) - {"nesterov", "five_gcs"}))
def test_of_every_method_that_does_without_constants(name: str) -> None:
    alpha, one = np.array([0.5, 0.8, 1.0]), np.ones(3)
    known = theory.advise(alpha, Constants(one, one / 20, one), Exact(), one, 0 * one)
    unknown = theory.without_theory(alpha, 0.1 * one, 0.5, Exact())
    keys: dict[str, Any] = {**KEYS, "method": name, "pace": "expected"}
    config = for_method(DeployConfig(**keys))
    expected, made = make_method(known, config), make_method(unknown, config, planned=False)
    np.testing.assert_allclose(made.gamma, expected.gamma, rtol=1e-12)
