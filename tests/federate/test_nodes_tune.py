"""Networks whose nodes tune the model when the rounds are over, and mix: as in the simulator."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hospitals import Crash, Direct, Hospital, introduce, quick_folder
from safetensors.numpy import load_file

import miniature
import scafflix as sx
import torch_networks
from scafflix.core.vector import Vector
from scafflix.federate.client import ClientCore
from scafflix.federate.configuration import DeployConfig, checked, recipe_on_node
from scafflix.federate.messages import Curve, Evaluate, Evaluation
from scafflix.federate.network import NetworkLearner
from scafflix.federate.node import client_of
from scafflix.federate.partition import write_nodes
from scafflix.federate.planning import advice
from scafflix.federate.pytorch import TorchLearner
from scafflix.federate.records import record
from scafflix.federate.roster import new_roster
from scafflix.federate.secure.server import SecureServer
from scafflix.federate.server import ServerCore
from scafflix.federate.serving import serve
from scafflix.federate.settings import Settings
from scafflix.gradients import Minibatch
from scafflix.models.dense import dense
from scafflix.record import Record
from scafflix.report.recommendation import recommendation

KINDS = ("jax", "torch")
FED = miniature.federation()
NETWORK = dense(miniature.FEATURES, miniature.CLASSES, (6,))
TWIN = torch_networks.twin(NETWORK)
RECIPE = sx.Recipe(stepsize=0.1, batch=4, steps=30, patience=0)
ROUNDS, P, GAMMA = 3, 0.4, 0.1
CONFIG = {"alpha": "auto", "optima": "after"}


@cache
def simulated(kind: str) -> Record:
    problem = sx.Problem(FED, NETWORK if kind == "jax" else TWIN, 0.01)
    person = sx.personalize(problem, "auto", recipe=RECIPE)
    plan = sx.plan(problem, person, gradient=Minibatch(4), stepsize=GAMMA)
    method = sx.scafflix(plan, p=P, pace="actual")
    return sx.run(problem, person, method, rounds=ROUNDS, cohort=3, seed=5)


@cache
def learner(kind: str, number: int) -> NetworkLearner | TorchLearner:
    mine, batches = FED.take([number]), Minibatch(4)
    if kind == "jax":
        return NetworkLearner(mine, NETWORK, 0.01, gradient=batches, recipe=RECIPE)
    return TorchLearner(mine, TWIN.make, l2=0.01, gradient=batches, recipe=RECIPE)


def clinics(folder: Path, kind: str, secure: bool = False) -> dict[str, Hospital]:
    def maker(number: int) -> Callable[[Callable[[str], None]], ClientCore]:
        more: dict[str, Any] = {"rule": "auto", "after": True, "secure": secure}
        name = f"client-{number}"
        return lambda hook: ClientCore(name, 1.0, learner(kind, number), folder, hook, **more)

    return {f"client-{k}": Hospital(maker(k)) for k in range(miniature.N)}


def server_of(folder: Path, hospitals: Mapping[str, Hospital], secure: bool = False) -> ServerCore:
    roster = new_roster(introduce(hospitals))
    method = sx.scafflix(advice(roster.introductions, Minibatch(4), GAMMA, P), p=P, pace="actual")
    first = hospitals["client-0"].core.learner.start().tree
    settings = Settings(rounds=ROUNDS, cohort=3, seed=5, secure_aggregation=secure)
    (folder / "server").mkdir()
    kind = SecureServer if secure else ServerCore
    return kind(folder / "server", roster, method, first, settings)


@pytest.fixture
def folder() -> Iterator[Path]:
    with quick_folder() as made:
        yield made


def models(wanted: Record, kind: str, number: int | None = None) -> list[Any]:
    found = [array for name, array in wanted.models.items() if name.startswith(f"{kind}/")]
    return found if number is None else [array[number] for array in found]


def kept(hospital: Hospital, run: str) -> list[Any]:
    """The model that a client took home, in the order of its learner."""
    saved = load_file(hospital.core.model_path(run))
    order = hospital.core.learner.named(hospital.core.learner.start())  # type: ignore[attr-defined]
    return [saved[name] for name in order]


def near(mine: Any, theirs: Any, within: float = 2e-5) -> None:
    for one, other in zip(mine, theirs, strict=True):
        assert np.abs(np.asarray(one) - np.asarray(other)).max() < within


@pytest.mark.parametrize("kind", KINDS)
def test_nodes_take_home_the_mixtures_of_the_simulator(kind: str, folder: Path) -> None:
    hospitals, wanted = clinics(folder, kind), simulated(kind)
    server, wire = server_of(folder, hospitals), Direct(hospitals)
    made = record(server, serve(server, wire), CONFIG, 0.0)
    near(server.x, models(wanted, "global"))
    np.testing.assert_array_equal(made.clients["alpha"], wanted.clients["alpha"])
    assert len(set(made.clients["alpha"].tolist())) > 1
    for number, hospital in enumerate(hospitals.values()):
        near(kept(hospital, server.run), models(wanted, "personal", number))
        own = hospital.core.models(server.run)
        local = [array for name, array in own.items() if name.startswith("local/")]
        near([array[0] for array in local], models(wanted, "local", number))
    for name in ("expected_gain", *(f"test_loss_{k}" for k in ("local", "global", "personal"))):
        np.testing.assert_allclose(made.clients[name], wanted.clients[name], atol=1e-4)
    assert len([one for one in wire.seen if isinstance(one, Curve)]) == miniature.N


def test_nothing_is_looked_for_before_the_rounds(folder: Path) -> None:
    hospitals = clinics(folder, "jax")
    serve(server_of(folder, hospitals), Direct(hospitals))
    assert not list(folder.rglob("optimum*"))


@pytest.mark.parametrize("kind", KINDS)
def test_the_stream_of_a_client_is_that_of_its_number(kind: str) -> None:
    mine = learner(kind, 2)
    x = mine.start()
    near(mine.tuned(x, 2).tree, mine.tuned(x, 2).tree, 1e-12)
    with pytest.raises(AssertionError):
        near(mine.tuned(x, 2).tree, mine.tuned(x, 3).tree, 1e-4)


@pytest.mark.parametrize("kind", KINDS)
def test_a_node_killed_while_it_tunes_tunes_again_and_takes_home_the_same(
    kind: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hospitals = clinics(folder, kind)
    server, wire = server_of(folder, hospitals), Direct(hospitals)
    victim, calls = hospitals["client-2"], list[int]()
    tuned = type(victim.core.learner).tuned  # type: ignore[attr-defined]

    def counted(self: Any, x: Vector, number: int) -> Vector:
        found: Vector = tuned(self, x, number)
        calls.append(number)
        if calls.count(2) == 1 and number == 2:
            raise Crash
        return found

    class Killing(Direct):
        def exchange(self, requests: Any) -> Any:
            for name, request in requests.items():
                hospital = self.hospitals[name]
                try:
                    reply = hospital.handle(request)
                except Crash:
                    hospital.restart()
                    reply = hospital.handle(request)
                yield name, reply

    monkeypatch.setattr(type(victim.core.learner), "tuned", counted)
    wire = Killing(hospitals)
    serve(server, wire)
    assert calls.count(2) == 2
    assert all(calls.count(number) == 1 for number in range(miniature.N) if number != 2)
    near(kept(victim, server.run), models(simulated(kind), "personal", 2))


def test_the_last_question_repeated_has_the_same_answer_without_tuning_again(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hospitals = clinics(folder, "jax")
    server, wire = server_of(folder, hospitals), Direct(hospitals)
    serve(server, wire)
    (last,) = [m for m in wire.seen if isinstance(m, Evaluate) and m.others and m.number == 2]
    (told,) = [m for m in wire.seen if isinstance(m, Evaluation) and m.client == "client-2"]
    hospital = hospitals["client-2"]
    hospital.restart()

    def refuse(*_: object) -> Vector:
        raise AssertionError("tuned although it was kept")

    monkeypatch.setattr(NetworkLearner, "tuned", refuse)
    assert hospital.handle(last) == told


def test_with_secure_aggregation_they_take_home_the_same(folder: Path) -> None:
    hospitals, wanted = clinics(folder, "jax", secure=True), simulated("jax")
    server, wire = server_of(folder, hospitals, secure=True), Direct(hospitals)
    serve(server, wire)
    assert not [one for one in wire.seen if isinstance(one, Curve)]
    for number, hospital in enumerate(hospitals.values()):
        near(kept(hospital, server.run), models(wanted, "personal", number), 1e-4)


def test_the_sentences_speak_of_fine_tuning(folder: Path) -> None:
    hospitals = clinics(folder, "jax")
    server = server_of(folder, hospitals)
    made = record(server, serve(server, Direct(hospitals)), CONFIG, 0.0)
    assert made.summary["tuned"]
    words = " ".join(recommendation(made))
    assert "fine-tuning" in words
    assert "alone" not in words


KEYS = {"data": "iris", "clients": 3, "split": "shuffled", "model": "dense", "min_examples": 5}


def test_with_a_rule_networks_tune_after_the_rounds_and_with_a_number_before() -> None:
    assert checked(DeployConfig(**KEYS, alpha="auto")).optima == "after"
    assert checked(DeployConfig(**KEYS, alpha="auto", optima="common")).optima == "common"
    assert checked(DeployConfig(**KEYS, alpha=0.3)).optima == "common"
    assert checked(DeployConfig(**KEYS, alpha="auto"), own=True).optima == "after"


def test_a_node_tunes_by_twenty_steps_unless_told() -> None:
    config = checked(DeployConfig(**KEYS, alpha="auto"))
    assert recipe_on_node(config) == sx.Recipe(0.05, 32, 20, patience=0)
    config = checked(DeployConfig(**KEYS, alpha="auto", optima_steps=70))
    assert recipe_on_node(config).steps == 70
    assert recipe_on_node(checked(DeployConfig(**KEYS, alpha=0.3))).steps == 200


def test_after_the_rounds_and_a_number_is_one_sentence() -> None:
    with pytest.raises(sx.ScafflixError, match="a number is trained for"):
        checked(DeployConfig(**KEYS, alpha=0.3, optima="after"))


def test_a_node_with_a_number_of_its_own_trains_for_its_mixture(tmp_path: Path) -> None:
    config = checked(DeployConfig(**KEYS, alpha="auto", validation=0.2, optima_steps=10))
    config, nodes = write_nodes(config, None, tmp_path)
    choosing, training = (client_of(config, nodes[0] | own) for own in ({}, {"alpha": 0.3}))
    assert isinstance(choosing, ClientCore)
    assert isinstance(training, ClientCore)
    assert choosing.tuner is choosing.learner
    assert (choosing.alpha, choosing.rule) == (1.0, "validation")
    assert training.tuner is None
    assert training.learner.recipe.patience > 0  # type: ignore[attr-defined]
