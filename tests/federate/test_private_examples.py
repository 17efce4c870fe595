"""Privacy for every example between machines: whole federations, in one process."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("flwr", reason="Flower is not installed; pip install 'scafflix[flower]'")
pytest.importorskip("dp_accounting", reason="no accountant; pip install 'scafflix[privacy]'")

from private_federations import KEYS, N, Seeded, deployed, simulated

from scafflix.core.errors import ScafflixError
from scafflix.federate import convex, network
from scafflix.federate.configuration import DeployConfig, checked
from scafflix.federate.draws import Secret
from scafflix.federate.learner import Place
from scafflix.federate.node import client_of
from scafflix.federate.partition import write_nodes
from scafflix.federate.privacy import Guard, Terms
from scafflix.federate.wire import unpack
from scafflix.privacy import epsilon_of_batches

CASES: dict[str, dict[str, Any]] = {
    "all examples": {},
    "batches": {"batch": 12},
    "two gradients a step": {"method": "fedlin"},
    "network": {"model": "dense", "batch": 12, "optima": "none", "validation": 0.0},
}


@pytest.mark.parametrize("case", CASES)
def test_with_the_random_numbers_of_a_simulation_the_models_and_epsilons_are_its_own(
    case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(convex, "Secret", Seeded)
    monkeypatch.setattr(network, "Secret", Seeded)
    made, _, _ = deployed(tmp_path, **CASES[case])
    expected = simulated(**CASES[case])
    for name, mine in made.models.items():
        tolerance = 1e-12 if mine.dtype == np.float64 else 1e-5
        np.testing.assert_allclose(mine, expected.models[name], rtol=0, atol=tolerance)
    np.testing.assert_array_equal(made.clients["epsilon"], expected.clients["epsilon"])
    assert made.summary["privacy"] == expected.summary["privacy"]
    assert made.clients["epsilon"].min() > 0


def test_the_noise_of_a_node_is_nobody_elses(tmp_path: Path) -> None:
    one, grid, nodes = deployed(tmp_path / "one")
    other, _, _ = deployed(tmp_path / "other")
    assert np.abs(one.models["global"] - other.models["global"]).max() > 1e-3  # of one seed
    told = [unpack(record) for record in grid.records]
    for message in told:
        if type(message).__name__ in ("Upload", "Evaluation"):
            assert np.isnan(message.loss)
        assert not getattr(message, "gamma_L", 0.0)
    assert [node["alpha"] for node in nodes] == [1.0] * N


def test_gradients_are_as_noisy_as_said_and_examples_take_part_by_chance(tmp_path: Path) -> None:
    keys = {**KEYS, "batch": 12, "clip": 5.0, "noise_multiplier": 0.4}  # nothing is clipped
    config, nodes = write_nodes(checked(DeployConfig(**keys)), N, tmp_path)
    learner: Any = client_of(config, nodes[0]).learner
    point, place = learner.start(), Place(0, 0, 0, 0, 0, N)
    drawn = np.array([learner.gradient(point, place).tree[0] for _ in range(400)])
    size = drawn.std(axis=0)
    assert 1.05 * size.mean() > 5.0 * 0.4 / 12
    mean = learner.full_gradient(point).tree[0]
    assert np.abs(drawn.mean(axis=0) - mean).max() < 5 * size.max() / np.sqrt(len(drawn))
    taken = Secret().uniforms(place, 10_000)
    assert abs((taken < 0.3).mean() - 0.3) < 0.03


def test_the_budget_ends_the_run_where_a_simulation_ends(tmp_path: Path) -> None:
    keys = {"budget": 6.0, "rounds": 50, "batch": 12}
    made, _, _ = deployed(tmp_path, **keys)
    expected = simulated(**keys)
    assert 0 < made.summary["rounds"] == expected.summary["rounds"] < 50
    assert made.summary["privacy"]["ended_by_budget"]
    assert made.clients["epsilon"].max() <= 6.0
    with pytest.raises(ScafflixError, match="One round could already exceed the budget"):
        deployed(tmp_path / "small", **{**keys, "budget": 0.01})


def test_a_client_counts_over_all_runs_of_its_folder_with_any_noise(tmp_path: Path) -> None:
    path = tmp_path / "privacy.safetensors"
    first = Terms(1.0, 2.0, 1e-4, unit="example", batch=10)
    Guard(first).count(path, 7, 40)
    Guard(first).count(path, 5, 40)
    less = first._replace(noise=1.0, budget=100.0)
    Guard(less).count(path, 3, 40)
    bound = epsilon_of_batches(0.25, 2.0, 12, 1e-4)
    with pytest.raises(ScafflixError, match=r"one more upload takes epsilon .* has sent 3"):
        Guard(first._replace(budget=bound)).count(path, 1, 40)
    with pytest.raises(ScafflixError, match="privacy example, to which those with privacy client"):
        Guard(first._replace(unit="client")).count(path, 1, 40)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"noise_multiplier": None, "budget": 3.0}, "noise_multiplier is missing"),
        ({"alpha": 0.5}, "needs alpha = 1 in training"),
        ({"clip": None}, "clip is missing"),
        ({"stepsize": "auto"}, "Stepsizes by theory are made of the clients' data"),
        ({"reduced": True, "batch": 5}, "no memory"),
        ({"model": "net.py:Net"}, "for models in JAX"),
        ({"transport": "float32"}, "does not go with privacy"),
    ],
)
def test_what_would_tell_more_is_refused(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(ScafflixError, match=words):
        checked(DeployConfig(**{**KEYS, **changes}))


def test_a_budget_of_the_nodes_own_binds_whatever_the_run_says(tmp_path: Path) -> None:
    config, nodes = write_nodes(checked(DeployConfig(**KEYS, budget=50.0)), N, tmp_path)
    own: Any = client_of(config, {**nodes[0], "budget": 3})
    assert own.guard.terms.budget == 3.0
    assert own.guard.terms.delta == 1e-5
    with pytest.raises(ScafflixError, match="budget is 3, but the run adds no noise"):
        client_of(replace(config, privacy="none"), {**nodes[0], "budget": 3})
    with pytest.raises(ScafflixError, match="budget is -1"):
        client_of(config, {**nodes[0], "budget": -1})


def test_a_node_refuses_a_mixture_and_a_learner_without_such_gradients(tmp_path: Path) -> None:
    config, nodes = write_nodes(checked(DeployConfig(**KEYS)), N, tmp_path)
    with pytest.raises(ScafflixError, match="needs alpha = 1 in training"):
        client_of(config, {**nodes[0], "alpha": 0.5})
    own = tmp_path / "own.py"
    own.write_text("from hospitals import Quadratic\ndef make(*_): return Quadratic(0)\n")
    with pytest.raises(ScafflixError, match="for models in JAX"):
        client_of(config, {**nodes[0], "learner": f"{own}:make"})
