"""From the words of a configuration to methods."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import scafflix as sx
from scafflix import gradients, theory
from scafflix.federate.configuration import DeployConfig, checked
from scafflix.problems.constants import Constants
from scafflix.runs import refusals
from scafflix.runs.assembly import for_method, make_method, resolve
from scafflix.runs.config import RunConfig, build


@pytest.mark.parametrize("name", sorted(set(sx.METHODS) - {"nesterov"}))
def test_the_stepsize_of_a_network_is_gamma_for_every_method(name: str) -> None:
    asked = {"data": "digits", "model": "dense", "method": name, "stepsize": 0.3, "batch": "full"}
    config = for_method(resolve(build(RunConfig, asked)))
    alpha, gamma = np.array([0.5, 0.5]), np.array([0.3, 0.3])
    plan = theory.without_theory(alpha, gamma, 0.2, gradients.Exact())
    np.testing.assert_allclose(make_method(plan, config).gamma, gamma)


@pytest.mark.parametrize(
    ("model", "stepsize"), [("cnn", 0.1), ("lstm", 1.0), ("lstm:units=64", 1.0), ("dense", 0.1)]
)
def test_a_network_has_rounds_and_a_stepsize_of_its_own(model: str, stepsize: float) -> None:
    found = resolve(build(RunConfig, {"data": "digits", "model": model}))
    assert (found.rounds, found.every, found.stepsize) == (200, 20, stepsize)
    given = resolve(build(RunConfig, {"data": "digits", "model": model, "rounds": 50}))
    assert given.rounds == 50


def test_a_linear_model_has_fifty_rounds_in_simulations_and_federations() -> None:
    assert resolve(build(RunConfig, {"data": "digits"})).rounds == 50
    assert checked(build(DeployConfig, {"data": "digits", "model": "softmax"})).rounds == 50


def test_the_cohort_of_a_run_is_what_five_gcs_is_planned_for() -> None:
    asked = {"data": "digits", "model": "softmax", "method": "five_gcs", "cohort": 3}
    config = resolve(build(RunConfig, asked))
    refusals.check_keys(config)
    one = np.ones(8)
    plan = theory.advise(one, Constants(one, one / 50, one), gradients.Exact(), one, 0 * one)
    made = make_method(plan, config)
    assert made.settings["cohort"] == 3
    assert made.rate.covers(3, 8)
    assert not made.rate.covers(2, 8)


def optima(**asked: Any) -> str:
    found: str = resolve(build(RunConfig, {"data": "digits", "model": "dense", **asked})).optima
    return found


@pytest.mark.parametrize(
    "name",
    ["ditto", "mr_mtl", "pfedme", "apfl", "l2gd", "finetuning", "per_fedavg", "fedper", "fedrep"],
)
def test_methods_with_models_of_their_own_look_for_no_local_optima_unless_asked(name: str) -> None:
    assert optima(method=name) == optima(method=name, alpha=1.0) == "none"
    for way in ("common", "warm"):
        assert optima(method=name, optima=way) == way
    for asks in ({"optima_steps": 5}, {"individual": True}, {"alpha": 0.5}, {"alpha": [1, 0.5]}):
        assert optima(method=name, **asks) == "common"


@pytest.mark.parametrize("name", ["scafflix", "fedavg", "scaffold"])
def test_methods_that_mix_look_for_local_optima(name: str) -> None:
    assert optima(method=name) == "after"
    assert optima(method=name, alpha=1.0) == "common"
