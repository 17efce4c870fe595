"""From files on a node to its client: every kind of file, labels that a node lacks, networks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hospitals import Direct, Hospital, introduce

import scafflix as sx
from scafflix.federate.client import ClientCore
from scafflix.federate.configuration import DeployConfig, checked
from scafflix.federate.examples import load_examples
from scafflix.federate.learner import Place
from scafflix.federate.node import client_of
from scafflix.federate.partition import write_nodes
from scafflix.federate.planning import advice
from scafflix.federate.roster import new_roster
from scafflix.federate.server import ServerCore
from scafflix.federate.serving import serve
from scafflix.federate.settings import Settings
from scafflix.gradients import Minibatch
from scafflix.methods import METHODS


def node(config: DeployConfig, data: Path, folder: Path, name: str = "a", **own: Any) -> ClientCore:
    settings = {"client": name, "data": str(data), "folder": str(folder), "min-examples": 1, **own}
    made = client_of(checked(config), settings)
    assert isinstance(made, ClientCore)  # no table
    return made


ROWS = ([1.0, 0.5, -1.0, 2.0, 0.25], [0.5, 1.0, 2.0, -1.0, 0.125], [1, 2, 1, 2, 1])


def test_the_same_examples_from_svmlight_and_npz_are_the_same_function(tmp_path: Path) -> None:
    a, b, label = ROWS
    rows = list(zip(a, b, label, strict=True))
    words = [f"{z} 1:{x} 2:{y}" for x, y, z in rows]
    (tmp_path / "d.svm").write_text("\n".join(words) + "\n")
    np.savez(tmp_path / "d.npz", x=np.array([a, b]).T, y=label)
    config = DeployConfig(data="nodes", alpha=0.5, classes=(1, 2))
    found = [
        node(config, tmp_path / f"d.{kind}", tmp_path / kind).learner for kind in ("svm", "npz")
    ]
    point = found[0].start()
    assert len({round(learner.loss(point), 12) for learner in found}) == 1
    assert len({learner.scales for learner in found}) == 1


def test_a_learner_that_cannot_reduce_variance_is_not_taken_for_one_that_does(
    tmp_path: Path,
) -> None:
    here = "from hospitals import Quadratic, Sampled\n"
    makes = "def {0}(path, config):\n    return {1}(0)\n"
    code = here + makes.format("plain", "Quadratic") + makes.format("able", "Sampled")
    (tmp_path / "mine.py").write_text(code)
    config = DeployConfig(
        data="nodes", alpha=0.5, model="mine", batch=4, reduced=True, stepsize=0.1, p=0.5
    )
    file = tmp_path / "mine.py"

    def made(name: str) -> ClientCore:
        own = {"client": "a", "data": "d", "folder": str(tmp_path), "min-examples": 1}
        return client_of(checked(config, own=True), {**own, "learner": f"{file}:{name}"})

    assert made("able").name == "a"
    with pytest.raises(sx.ScafflixError, match="no `estimate` of reduced variance"):
        made("plain")


def test_a_node_may_lack_a_class_that_was_agreed_on(tmp_path: Path) -> None:
    np.savez(tmp_path / "d.npz", x=np.ones((3, 2)), y=np.array(["no", "no", "no"]))
    config = DeployConfig(data="nodes", classes=("no", "yes"))
    learner = node(config, tmp_path / "d.npz", tmp_path).learner
    g = learner.gradient(0 * learner.start(), Place(0, 0, 0, 0, 0, 1)).tree[0]
    assert (g > 0).all()  # away from yes
    with pytest.raises(sx.ScafflixError, match="not among the classes"):
        node(DeployConfig(data="nodes", classes=("maybe", "yes")), tmp_path / "d.npz", tmp_path)


def test_labels_that_every_node_must_number_alike_are_asked_for(tmp_path: Path) -> None:
    np.savez(tmp_path / "d.npz", x=np.ones((4, 2)), y=np.array([0, 1, 0, 1]))
    with pytest.raises(sx.ScafflixError, match="classes is empty"):
        node(DeployConfig(data="nodes"), tmp_path / "d.npz", tmp_path)
    np.savez(tmp_path / "d.npz", x=np.ones((4, 2)), y=np.array(["no", "yes"] * 2))
    with pytest.raises(sx.ScafflixError, match="classes must list all labels"):
        node(DeployConfig(data="nodes", model="dense", batch=1), tmp_path / "d.npz", tmp_path)


def test_rows_may_say_which_part_they_are_of(tmp_path: Path) -> None:
    x, part = np.arange(8.0).reshape(4, 2), ["test", "train", "validation", "train"]
    np.savez(tmp_path / "d.npz", x=x, y=[0, 1, 0, 1], part=part)
    found = load_examples(DeployConfig(data="nodes", test=0.5), tmp_path / "d.npz", network=False)
    np.testing.assert_array_equal(found.train.features, x[[1, 3]])
    np.testing.assert_array_equal(found.parts["test"].features, x[[0]])
    np.testing.assert_array_equal(found.parts["validation"].features, x[[2]])
    np.savez(tmp_path / "d.npz", x=x, y=[0, 1, 0, 1], part=["train"] * 3 + ["tset"])
    with pytest.raises(sx.ScafflixError, match="part must be one of train, test, validation"):
        load_examples(DeployConfig(data="nodes"), tmp_path / "d.npz", network=False)


def test_local_optima_are_found_once_and_again_when_the_data_change(tmp_path: Path) -> None:
    a, b, label = ROWS
    config = DeployConfig(data="nodes", alpha=0.5, classes=(1, 2))
    np.savez(tmp_path / "d.npz", x=np.array([a, b]).T, y=label)
    first = node(config, tmp_path / "d.npz", tmp_path)
    assert first.x_star is not None
    again = node(config, tmp_path / "d.npz", tmp_path)
    again.learner.optimum = None  # type: ignore[assignment, method-assign]
    assert again.x_star is not None
    np.testing.assert_array_equal(again.x_star.tree[0], first.x_star.tree[0])
    np.savez(tmp_path / "d.npz", x=np.array([b, a]).T, y=label)
    other = node(config, tmp_path / "d.npz", tmp_path)
    assert other.x_star is not None
    assert np.abs(other.x_star.tree[0] - first.x_star.tree[0]).max() > 1e-3


def test_the_cnn_trains_on_nodes_with_images(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SCAFFLIX_CACHE", str(tmp_path / "cache"))
    random = np.random.default_rng(0)
    config = DeployConfig(data="nodes", model="cnn", alpha=1.0, batch=4, validation=0.0)
    hospitals = {}
    for k in range(2):
        images = random.integers(0, 255, (8, 28, 28), np.uint8)
        np.savez(tmp_path / f"{k}.npz", x=images, y=random.integers(0, 62, 8))
        core = node(config, tmp_path / f"{k}.npz", tmp_path, f"clinic-{k}")
        hospitals[f"clinic-{k}"] = Hospital(lambda hook, core=core: core)  # type: ignore[misc]
    roster = new_roster(introduce(hospitals))
    plan = advice(roster.introductions, Minibatch(4), 0.05, 0.5)
    method = METHODS["scafflix"](plan, p=0.5, pace="actual")
    start = hospitals["clinic-0"].core.learner.start().tree
    server = ServerCore(tmp_path, roster, method, start, Settings(rounds=3))
    told = serve(server, Direct(hospitals))
    losses = [row["loss"] for row in server.rows()]
    assert len(server.x) == 8
    assert all(array.dtype == np.float32 for array in server.x)
    assert told["clinic-0"].loss < losses[0]


def test_strings_as_labels_of_a_network_have_the_same_places_on_every_node(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    config = DeployConfig(data="nodes", model="dense", batch=2, classes=("c", "a", "b"))
    np.savez(tmp_path / "d.npz", x=random.normal(size=(12, 3)), y=np.array(["b", "c"] * 6))
    core = node(config, tmp_path / "d.npz", tmp_path)
    labels = core.learner.problem.train.labels  # type: ignore[attr-defined]
    assert set(labels.tolist()) == {1, 2}
    assert core.layout.endswith("[3]") or ",3]" in core.layout


def test_clients_whose_names_differ_in_signs_only_become_different_nodes(tmp_path: Path) -> None:
    rows = [f"{site},{x},{x % 2}" for site in ("a b", "a_b") for x in range(6)]
    (tmp_path / "sites.csv").write_text("\n".join(["site,x,label", *rows]) + "\n")
    config = DeployConfig(
        data=str(tmp_path / "sites.csv"), split="column:site", label="label", model="logistic"
    )
    _, nodes = write_nodes(config, None, tmp_path / "nodes")
    assert [node["client"] for node in nodes] == ["a_b-0", "a_b-1"]
