"""The same configuration and seed, simulated and deployed, give the same models."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from hospitals import (
    ALPHA,
    LEARNERS,
    Direct,
    Hospital,
    flat,
    fresh_roster,
    introduce,
    make_server,
    quadratic_hospitals,
)
from safetensors.numpy import load_file

import cases
import scafflix as sx
from executions import schedule, several
from made_up import made_up
from scafflix import algorithm
from scafflix.core.store import Store
from scafflix.core.vector import Vector, names_of
from scafflix.federate.client import ClientCore
from scafflix.federate.closing import Farewell
from scafflix.federate.convex import ConvexLearner
from scafflix.federate.learner import Place
from scafflix.federate.messages import Introduction
from scafflix.federate.network import NetworkLearner
from scafflix.federate.planning import advice
from scafflix.federate.records import record
from scafflix.federate.roster import new_roster
from scafflix.federate.server import ServerCore
from scafflix.federate.serving import serve
from scafflix.federate.settings import Settings
from scafflix.gradients import Exact, Gradient, Minibatch, Reduced
from scafflix.methods import METHODS, Client, parameters
from scafflix.methods.private import ready
from scafflix.models.dense import dense
from scafflix.personalization.personalize import Start
from scafflix.record import Record
from scafflix.simulate.cohorts import train
from scafflix.simulate.schedule import Schedule
from scafflix.simulate.taken_home import End, models_of, named
from scafflix.theory import without_theory

ROUNDS = 20


@cache
def learner(kind: str, number: int, gradient: Gradient) -> ConvexLearner:
    fed = cases.federation(kind)
    classes = None if kind == "linear" else tuple(np.unique(fed.train.labels).tolist())
    model = sx.models.MODELS[kind]()
    mine = fed.take([number])
    return ConvexLearner(mine, model, cases.L2, gradient=gradient, classes=classes)


def convex_hospitals(
    folder: Path, kind: str, gradient: Gradient | None = None
) -> dict[str, Hospital]:
    estimate = gradient or Exact()

    def maker(number: int) -> Any:
        name, alpha = f"client-{number}", float(cases.ALPHA[number])
        return lambda hook: ClientCore(name, alpha, learner(kind, number, estimate), folder, hook)

    return {f"client-{k}": Hospital(maker(k)) for k in range(len(cases.ALPHA))}


@pytest.mark.parametrize("kind", ["softmax", "linear"])
def test_every_convex_model_deployed_makes_the_models_of_the_simulator(
    kind: str, tmp_path: Path
) -> None:
    case = cases.case(kind)
    simulated = sx.run(case.problem, case.person, sx.scafflix(case.plan), rounds=ROUNDS, seed=1)
    hospitals = convex_hospitals(tmp_path, kind)
    start = hospitals["client-0"].core.learner.start()
    server = make_server(tmp_path, fresh_roster(hospitals), start, rounds=ROUNDS, seed=1)
    serve(server, Direct(hospitals))
    assert np.abs(server.x[0] - simulated.models["global"]).max() < 1e-6


@pytest.mark.parametrize(
    ("name", "gradient", "cohort"),
    [
        ("scafflix", Minibatch(4), None),
        ("sgd", Minibatch(4), None),
        ("finetuning", Minibatch(4), None),
        ("scafflix", Reduced(4), 3),
        ("sgd", Reduced(4), None),
        ("ditto", Reduced(4), 3),
        ("finetuning", Reduced(4), 3),
    ],
)
def test_minibatches_are_those_of_the_simulator(
    name: str, gradient: Gradient, cohort: int | None, tmp_path: Path
) -> None:
    case = cases.case("logistic")
    method = METHODS[name](sx.plan(case.problem, case.person, gradient=gradient))
    simulated = sx.run(case.problem, case.person, method, rounds=ROUNDS, seed=3, cohort=cohort)
    hospitals = convex_hospitals(tmp_path, "logistic", gradient)
    roster = fresh_roster(hospitals)
    plan = advice(roster.introductions, gradient)
    deployed = METHODS[name](plan)
    if isinstance(gradient, Reduced):
        np.testing.assert_allclose(deployed.rate, method.rate)
    start = hospitals["client-0"].core.learner.start()
    settings = Settings(rounds=ROUNDS, seed=3, cohort=cohort)
    server = ServerCore(tmp_path, roster, deployed, start.tree, settings)
    serve(server, Direct(hospitals))
    assert np.abs(server.x[0] - simulated.models["global"]).max() < 1e-6
    for i, hospital in enumerate(hospitals.values()):
        kept = load_file(hospital.core.model_path(server.run))["model"]
        assert np.abs(kept - simulated.models["personal"][i]).max() < 1e-6


def test_a_deployed_run_leaves_a_record_that_can_be_read(tmp_path: Path) -> None:
    hospitals = convex_hospitals(tmp_path, "logistic")
    start = hospitals["client-0"].core.learner.start()
    server = make_server(tmp_path, fresh_roster(hospitals), start, rounds=3)
    told = serve(server, Direct(hospitals))
    record(server, told, {"method": "scafflix"}, 1.0).save(tmp_path / "record")
    found = Record.load(tmp_path / "record")
    assert found.summary["refused"] == 0
    objective = found.metrics["objective"].tolist()
    assert objective == sorted(objective, reverse=True)
    assert objective[-1] == found.summary["final_objective"]
    assert found.clients["rounds"].tolist() == [3] * 5


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("name", [*METHODS, "made_up"])
def test_cohorts_make_the_points_of_algorithm_1(name: str, tmp_path: Path) -> None:
    users = made_up if name == "made_up" else None
    hospitals = quadratic_hospitals(tmp_path, method=users)
    start, roster = LEARNERS[0].start(), fresh_roster(hospitals)
    asked: dict[str, Any] = {"rounds": ROUNDS, "seed": 2, "cohort": 3}
    server = make_server(tmp_path, roster, start, name, make=users, **asked)
    method, n, nowhere = server.method, len(ALPHA), Place(0, 0, 0, 0, 0, 0)
    serve(server, Direct(hospitals))
    assert method.fit is None
    examples = np.array([learner.examples for learner in LEARNERS])
    everyone = Client(np.array(ALPHA), np.asarray(method.gamma), None, examples, float(n))
    clients = [
        Client(
            ALPHA[i], float(method.gamma[i]), LEARNERS[i].optimum(), float(examples[i]), float(n)
        )
        for i in range(n)
    ]

    def gradient(i: int, r: int, points: Any, k: int) -> Any:
        return several(lambda x: LEARNERS[i].gradient(x, nowhere), points)

    zeros = [0 * start] * n
    rounds = schedule(method, everyone, 2, ROUNDS, cohort=3)
    made = algorithm.run(method, clients, start, zeros, gradient, rounds)
    assert np.abs(flat(server.x) - flat(made.server.x)).max() < 1e-10
    for i, hospital in enumerate(hospitals.values()):
        message = Farewell(server).request(hospital.core.name)
        mine, theirs = hospital.core.control(message), method.controls(clients[i], made.states[i])
        assert (mine is None) == (theirs is None)
        if mine is not None:
            np.testing.assert_allclose(flat(mine), flat(theirs), atol=1e-9)
        home = algorithm.take_home(
            method,
            clients[i],
            made.states[i],
            made.server.x,
            lambda x, k, i=i: LEARNERS[i].gradient(x, nowhere),
        )
        kept = load_file(hospital.core.model_path(server.run))
        np.testing.assert_allclose(flat(list(kept.values())), flat(home), atol=1e-9)


FEATURES, CLASSES, SIZES = 4, 3, (12, 9, 15, 8)


def _network_federation() -> sx.data.Federation:
    random = np.random.default_rng(0)
    parts = {}
    for i, m in enumerate(SIZES):
        A = random.normal(size=(m, FEATURES)).astype(np.float32) + 0.3 * i
        parts[f"client-{i}"] = (A, random.integers(0, CLASSES, m))
    return sx.data.from_clients(parts)


@pytest.mark.parametrize(
    ("name", "gradient"),
    [
        ("scafflix", Minibatch(5)),
        ("finetuning", Minibatch(5)),
        ("i_scaffnew", Exact()),
        ("fedrep", Minibatch(5)),
        ("scafflix", Reduced(5)),
        ("finetuning", Reduced(5)),
        ("fedrep", Reduced(5)),
    ],
)
def test_a_network_with_cohorts_deployed_makes_the_models_of_the_simulator(
    name: str, gradient: Gradient, tmp_path: Path
) -> None:
    fed, network = _network_federation(), dense(FEATURES, CLASSES, hidden=())
    whole = sx.Problem(fed, network, 0.01)
    alpha = np.array([1.0, 0.4, 0.7, 0.9])
    plan = without_theory(alpha, np.full(4, 0.1), 0.4, gradient)
    chosen: dict[str, Any] = {"p": 0.4}
    chosen |= {"pace": "actual"} if "pace" in parameters(METHODS[name]) else {}
    chosen |= {"cap": 0.5} if "cap" in parameters(METHODS[name]) else {}
    chosen |= {"own": "*/bias"} if "own" in parameters(METHODS[name]) else {}
    method = ready(METHODS[name](plan, **chosen), names_of(whole.template))
    random = np.random.default_rng(5)
    stars = jax.tree.map(
        lambda leaf: (0.3 * random.normal(size=(4, *leaf.shape))).astype(np.float32),
        whole.template,
    )
    store = Store(whole.template, 4)
    store.write(np.arange(4), stars)
    start = whole.start(0)
    schedule = Schedule(rounds=ROUNDS, cohort=2, seed=3, every=ROUNDS, part="train")
    person = sx.Personalization(alpha, store, start=Start(start))
    trained = train(whole, person, method, start, schedule)

    class Given(NetworkLearner):
        number = 0

        def optimum(self) -> Vector:
            return Vector(tuple(leaf[self.number] for leaf in jax.tree.leaves(stars)))

    def maker(number: int) -> Any:
        mine = Given(fed.take([number]), network, 0.01, gradient=gradient)
        mine.number = number
        core = ClientCore(f"client-{number}", float(alpha[number]), mine, tmp_path)
        return lambda hook: core

    hospitals = {f"client-{k}": Hospital(maker(k)) for k in range(4)}
    roster = new_roster(introduce(hospitals))
    deployed = METHODS[name](advice(roster.introductions, gradient, 0.1, 0.4), **chosen)
    settings = Settings(rounds=ROUNDS, cohort=2, seed=3)
    first = hospitals["client-0"].core.learner.start().tree
    server = ServerCore(tmp_path, roster, deployed, first, settings)
    serve(server, Direct(hospitals))
    for mine, theirs in zip(server.x, jax.tree.leaves(trained.x), strict=True):
        assert mine.dtype == np.float32
        # rounding: 1e-7 a step, which control variates remember
        assert np.abs(mine - np.asarray(theirs)).max() < 1e-5
    homes = models_of(whole, person, method, End(trained.x, trained.states, 3, ROUNDS))["personal"]
    for i, hospital in enumerate(hospitals.values()):
        kept = load_file(hospital.core.model_path(server.run))
        for key, theirs in named("", homes).items():
            assert np.abs(kept[key[1:]] - theirs[i]).max() < 1e-5


def test_a_network_without_stepsize_is_refused_in_one_sentence() -> None:
    shy = Introduction("a", 1.0, 0.0, 0.0, 0.0, 3, "float32[2]", ())
    with pytest.raises(sx.ScafflixError, match="Client a has no stepsize"):
        advice([shy], Exact())
