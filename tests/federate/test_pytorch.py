"""A user's PyTorch module as a node's learner."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip(
    "torch",
    reason="PyTorch (large) is not installed; pip install 'scafflix[torch]'",
)
pytest.importorskip("flwr", reason="Flower is not installed; pip install 'scafflix[flower]'")

import jax
import torch
from in_process_grid import InProcessGrid
from torch import nn

import scafflix as sx
from scafflix.core.plugins import find_function
from scafflix.core.vector import Vector
from scafflix.federate import flower_server
from scafflix.federate.configuration import DeployConfig, checked, text_of
from scafflix.federate.examples import load_examples
from scafflix.federate.flower_client import client_app
from scafflix.federate.learner import Place
from scafflix.federate.network import NetworkLearner
from scafflix.federate.node import client_of
from scafflix.federate.partition import write_nodes
from scafflix.federate.pytorch import TorchLearner
from scafflix.gradients import Minibatch, Reduced
from scafflix.models.dense import dense
from scafflix.models.pytorch import torch_network
from scafflix.personalization.recipe import Recipe
from scafflix.problems.making import start_of
from scafflix.runs.config import RunConfig, read
from scafflix.runs.runner import execute

EXAMPLES = Path(__file__).parents[2] / "examples"
FEATURES, CLASSES, L2 = 4, 3, 0.05
PLACE = Place(seed=1, round=2, step=3, iteration=9, number=0, clients=2)


def federation() -> sx.data.Federation:
    random = np.random.default_rng(0)
    examples = (random.normal(size=(30, FEATURES)), random.integers(0, CLASSES, 30))
    held_out = (random.normal(size=(9, FEATURES)), random.integers(0, CLASSES, 9))
    return sx.data.from_clients({"a": examples}, held_out={"a": held_out})


def linear() -> nn.Module:
    return nn.Linear(FEATURES, CLASSES)


def torch_learner(**options: Any) -> TorchLearner:
    return TorchLearner(federation(), linear, l2=L2, **options)


def test_losses_gradients_and_scores_are_those_of_the_same_model_in_jax() -> None:
    ours = NetworkLearner(federation(), dense(FEATURES, CLASSES, hidden=()), L2)
    theirs = torch_learner()
    weight, bias = np.float32(np.random.default_rng(1).normal(size=(3, 4))), np.float32([1, 2, 3])
    tree = jax.tree.unflatten(ours._structure, ours.start().tree)
    (layer,) = tree.values()
    mine = Vector(tuple(jax.tree.leaves({"l": {**layer, "bias": bias, "weight": weight.T}})))
    other = Vector((weight, bias))
    assert theirs.loss(other) == pytest.approx(ours.loss(mine), rel=1e-6)
    assert theirs.score(other) == pytest.approx(ours.score(mine), abs=1e-6)
    g_bias, g_weight = ours.gradient(mine, PLACE).tree
    h_weight, h_bias = theirs.gradient(other, PLACE).tree
    np.testing.assert_allclose(h_bias, g_bias, atol=1e-6)
    np.testing.assert_allclose(h_weight, g_weight.T, atol=1e-6)


def test_a_module_judges_its_mixtures_by_validation_examples_or_refuses() -> None:
    for word, said in (("loo", "for a PyTorch module use validation"), ("auto", "has none")):
        with pytest.raises(sx.ScafflixError, match=said):
            torch_learner().rule(word)
    fed = federation()
    with_validation = replace(fed, validation=fed.test, test=None)
    mine = TorchLearner(with_validation, linear, l2=L2)
    x, x_star = mine.start(), 3 * mine.start()
    found = mine.judged("common", x_star, x, 2)
    assert found.rule.name == "common"
    assert found.evidence.weight.tolist() == [9]
    middle = torch_learner().test_loss(2 * x)
    assert found.evidence.curves[0, 10] == pytest.approx(middle, rel=1e-5)
    assert found.evidence.curves[0, 0] == pytest.approx(torch_learner().test_loss(x_star))


def test_a_batch_depends_on_its_place_alone() -> None:
    learner = torch_learner(gradient=Minibatch(5))
    x = learner.start()
    first = learner.gradient(x, PLACE).tree[0]
    other = learner.gradient(x, PLACE._replace(step=4)).tree[0]
    np.testing.assert_array_equal(learner.gradient(x, PLACE).tree[0], first)
    assert np.abs(first - other).max() > 1e-3


def test_a_full_gradient_is_the_mean_of_all_batches_of_one() -> None:
    learner = torch_learner(gradient=Reduced(5))
    x, whole = 3 * learner.start(), torch_learner()
    np.testing.assert_allclose(
        learner.full_gradient(x).tree[0], whole.gradient(x, PLACE).tree[0], rtol=1e-6
    )
    assert np.abs(learner.gradient(x, PLACE).tree[0] - learner.full_gradient(x).tree[0]).max() > 0


def test_every_node_starts_from_the_same_point() -> None:
    one, two = torch_learner(), torch_learner()
    other = torch_learner(recipe=Recipe(seed=1))
    np.testing.assert_array_equal(one.start().tree[0], two.start().tree[0])
    assert np.abs(one.start().tree[0] - other.start().tree[0]).max() > 1e-3


def test_what_batch_norms_count_is_that_of_the_nodes_own_training_examples() -> None:
    def make() -> nn.Module:
        return nn.Sequential(nn.BatchNorm1d(FEATURES), nn.Linear(FEATURES, CLASSES))

    learner = TorchLearner(federation(), make)
    features = np.float32(learner.federation.train.features)
    saved = learner.named(learner.start())
    np.testing.assert_allclose(saved["0.running_mean"], features.mean(axis=0), atol=1e-6)
    np.testing.assert_allclose(saved["0.running_var"], features.var(axis=0, ddof=1), rtol=1e-5)
    assert [leaf.shape for leaf in learner.start().tree] == [(4,), (4,), (3, 4), (3,)]
    module = make().eval()
    module.load_state_dict({name: torch.from_numpy(array) for name, array in saved.items()})
    outputs = module(torch.from_numpy(features)).detach()
    labels = torch.from_numpy(np.asarray(learner.federation.train.labels))
    loss = float(nn.functional.cross_entropy(outputs, labels))
    assert learner.loss(learner.start()) == pytest.approx(loss, rel=1e-6)


def test_the_example_learns_in_a_federation(tmp_path: Path) -> None:
    config = checked(read(DeployConfig, EXAMPLES / "torch_node.toml", {}, []), own=True)
    name = f"{EXAMPLES / 'torch_node.py'}:learner"
    for_nodes, own = write_nodes(config, 3, tmp_path, name)
    settings = {"settings": text_of(for_nodes)}
    grid = InProcessGrid(client_app(), dict(enumerate(own, 10)), settings)
    made = flower_server.run(grid, for_nodes, tmp_path / "server", nodes=3, poll=0.0)
    objective = made.metrics["objective"]
    assert objective[-1] < 0.5 * objective[0]
    assert made.clients["score_personal"].min() > 0.8  # held-out digits
    assert made.summary["refused"] == 0
    assert {array.dtype for array in made.models.values()} == {np.dtype(np.float32)}
    personal_model, global_model = (
        find_function(f"{EXAMPLES / 'torch_node.py'}:{name}", "a model")
        for name in ("personal_model", "global_model")
    )
    for one, score in zip(own, made.clients["score_personal"], strict=True):
        path = Path(one["folder"]) / one["client"] / f"{made.summary['run']}-model.safetensors"
        test = load_examples(for_nodes, Path(one["data"]), network=True).parts["test"]
        outputs = personal_model(path)(torch.from_numpy(np.float32(test.features)))
        assert np.mean(outputs.argmax(1).numpy() == test.labels) == pytest.approx(score, abs=1e-6)
    shared = global_model(tmp_path / "server" / "record").state_dict()
    for name, array in shared.items():
        np.testing.assert_array_equal(array, made.models[f"global/{name}"])


def test_uploads_of_a_module_are_compressed_too(tmp_path: Path) -> None:
    config = read(DeployConfig, EXAMPLES / "torch_node.toml", {}, [])
    config = checked(replace(config, method="locodl:sigma=0.1", rounds=2, alpha=1.0), own=True)
    for_nodes, own = write_nodes(config, 3, tmp_path, f"{EXAMPLES / 'torch_node.py'}:learner")
    settings = {"settings": text_of(for_nodes)}
    grid = InProcessGrid(client_app(), dict(enumerate(own, 10)), settings)
    made = flower_server.run(grid, for_nodes, tmp_path / "server", nodes=3, poll=0.0)
    numbers = sum(array.size for array in made.models.values())
    assert made.metrics["bits_up"][-1] == 2 * 3 * 8 * np.ceil(9 * numbers / 8)
    assert made.summary["refused"] == 0
    assert made.metrics["objective"][-1] < made.metrics["objective"][0]


@pytest.mark.parametrize("more", [[], ["batch=10", "reduced=true"]], ids=["plain", "reduced"])
def test_a_module_is_deployed_with_the_models_of_its_simulation(
    more: list[str], tmp_path: Path
) -> None:
    model = f"{EXAMPLES / 'torch_node.py'}:Digits"
    words = [f"model={model}", "alpha=1", "optima_steps=20", "rounds=4", "cohort=3", *more]
    config = read(DeployConfig, EXAMPLES / "torch_node.toml", {}, words)
    asked = [f"{name}={getattr(config, name)}" for name in ("data", "clients", "split", "stepsize")]
    simulated = execute(read(RunConfig, None, {}, [*words, *asked]))
    for_nodes, own = write_nodes(checked(config), 3, tmp_path)
    settings = {"settings": text_of(for_nodes)}
    grid = InProcessGrid(client_app(), dict(enumerate(own, 10)), settings)
    made = flower_server.run(grid, for_nodes, tmp_path / "server", nodes=3, poll=0.0)
    for name, array in simulated.models.items():
        if name.startswith("global/"):
            np.testing.assert_allclose(made.models[name], array, rtol=1e-4, atol=1e-6)
    start = start_of(torch_network(model), 0)["output.weight"]
    assert np.abs(simulated.models["global/output.weight"] - start).max() > 1e-2


def test_a_node_never_loads_a_module_that_the_server_names(tmp_path: Path) -> None:
    model = f"{EXAMPLES / 'torch_node.py'}:Digits"
    config = read(DeployConfig, EXAMPLES / "torch_node.toml", {}, [f"model={model}"])
    for_nodes, own = write_nodes(checked(config), 3, tmp_path)
    assert own[0]["model"] == model
    del own[0]["model"]
    with pytest.raises(sx.ScafflixError, match="a node never loads a file that a server names"):
        client_of(for_nodes, own[0])
