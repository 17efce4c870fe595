"""alpha that chooses itself, in a federation: as in the simulator, by curves and their mean."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hospitals import LEARNERS, Direct, Hospital, fresh_roster, make_server, quick_folder
from safetensors.numpy import load_file

import scafflix as sx
from scafflix.core.vector import Vector
from scafflix.federate import judging
from scafflix.federate.client import ClientCore
from scafflix.federate.configuration import DeployConfig, checked
from scafflix.federate.convex import ConvexLearner
from scafflix.federate.messages import (
    Curve,
    Evaluate,
    Evaluation,
    Hello,
    Refusal,
    Reply,
    Request,
)
from scafflix.federate.network import NetworkLearner
from scafflix.federate.partition import write_nodes
from scafflix.federate.records import HIDDEN, SILENT, record
from scafflix.federate.roster import new_roster
from scafflix.federate.server import ServerCore
from scafflix.federate.serving import Failure, serve
from scafflix.models.dense import dense
from scafflix.personalization.rules.choosing import choose
from scafflix.personalization.rules.contract import GRID
from scafflix.report.content import content
from scafflix.report.curves import families
from scafflix.runs.adapting import adapt, told_by

ROUNDS, SIZES, L2 = 6, (12, 16, 25, 40, 60), 0.01
CLIENTS = len(SIZES)
CURVE, MEAN = 64 * (len(GRID) + 4), 64 * (len(GRID) + 2)  # bits
AWAY = "client-2"


@cache
def federation() -> sx.data.Federation:
    """Clients that are somewhat alike, with much and with little data."""
    random = np.random.default_rng(2)
    train: dict[object, Any] = {}
    test: dict[object, Any] = {}
    for number, size in enumerate(SIZES):
        w = np.ones(5) + 0.7 * random.normal(size=5)
        for part, rows in ((train, size), (test, 20)):
            A = random.normal(size=(rows, 5))
            score = A @ w + 1.5 * random.normal(size=rows)
            part[f"client-{number}"] = (A, np.where(score > 0, 1, -1))
    return sx.data.from_clients(train, held_out=test)


@cache
def problem() -> sx.Problem:
    return sx.Problem(federation(), sx.models.logistic(), L2)


@cache
def simulated() -> sx.Record:
    person = sx.personalize(problem(), "auto")
    method = sx.scafflix(sx.plan(problem(), person))
    return sx.run(problem(), person, method, rounds=ROUNDS, seed=1)


@cache
def learner(number: int) -> ConvexLearner:
    mine = federation().take([number])
    return ConvexLearner(mine, sx.models.logistic(), L2, classes=(-1, 1))


def mean_curve(curves: Any, sizes: Any) -> Any:
    """A client counts as its examples do, and for less than 100."""
    weights = 1 / (1 / np.array(sizes) + 1 / 100)
    return np.average(curves - curves[:, :1], axis=0, weights=weights)


def clinics(folder: Path, rule: str = "auto", secure: bool = False) -> dict[str, Hospital]:
    def maker(number: int) -> Callable[[Callable[[str], None]], ClientCore]:
        name, more = f"client-{number}", {"rule": rule, "secure": secure}
        return lambda hook: ClientCore(name, 1.0, learner(number), folder, hook, **more)  # type: ignore[arg-type]

    return {f"client-{k}": Hospital(maker(k)) for k in range(CLIENTS)}


def server_of(folder: Path, hospitals: Mapping[str, Hospital]) -> ServerCore:
    start = learner(0).start()
    return make_server(folder, fresh_roster(hospitals), start, rounds=ROUNDS, seed=1)


def test_with_secure_aggregation_they_choose_the_same_and_tell_only_sums(folder: Path) -> None:
    hospitals, wanted = clinics(folder, secure=True), simulated()
    asked = {"rounds": ROUNDS, "seed": 1, "secure_aggregation": True}
    server = make_server(folder, fresh_roster(hospitals), learner(0).start(), **asked)
    wire = Direct(hospitals)
    made = record(server, serve(server, wire), {"alpha": "auto"}, 0.0)
    assert not [one for one in wire.seen if isinstance(one, Curve)]
    for i, hospital in enumerate(hospitals.values()):
        kept = load_file(hospital.core.model_path(server.run))["model"]
        np.testing.assert_allclose(kept, wanted.models["personal"][i], atol=1e-6)
    assert np.isnan(made.clients["alpha"]).all()
    assert made.clients["alpha_note"].tolist() == [HIDDEN] * CLIENTS
    mean = wanted.clients["alpha"].mean()
    assert made.summary["alpha"]["mean"] == pytest.approx(mean, abs=1e-9)
    for kind in ("local", "global", "personal"):
        mean = wanted.clients[f"test_loss_{kind}"].mean()
        assert made.summary["reported"][f"test_loss_{kind}"] == pytest.approx(mean, abs=1e-6)


@pytest.fixture
def folder() -> Iterator[Path]:
    with quick_folder() as made:
        yield made


class Without(Direct):
    """Every message arrives, but some replies are lost."""

    def __init__(
        self, hospitals: Mapping[str, Hospital], lost: Callable[[str, Reply | Failure], bool]
    ) -> None:
        super().__init__(hospitals)
        self.lost = lost

    def exchange(self, requests: Mapping[str, Request]) -> Iterable[tuple[str, Reply | Failure]]:
        for name, reply in super().exchange(requests):
            yield name, Failure("it did not reply.") if self.lost(name, reply) else reply


def test_clients_choose_the_alphas_and_take_home_the_models_of_the_simulator(folder: Path) -> None:
    hospitals, wanted = clinics(folder), simulated()
    server, wire = server_of(folder, hospitals), Direct(hospitals)
    made = record(server, serve(server, wire), {"alpha": "auto"}, 0.0)
    np.testing.assert_array_equal(made.clients["alpha"], wanted.clients["alpha"])
    assert len(set(made.clients["alpha"].tolist())) > 3
    for i, hospital in enumerate(hospitals.values()):
        kept = load_file(hospital.core.model_path(server.run))["model"]
        np.testing.assert_allclose(kept, wanted.models["personal"][i], atol=1e-6)
    for name in ("expected_gain", *(f"test_loss_{k}" for k in ("local", "global", "personal"))):
        np.testing.assert_allclose(made.clients[name], wanted.clients[name], atol=1e-6)
    assert made.clients["alpha_note"].tolist() == wanted.clients["alpha_note"].tolist()
    for name in ("alpha", "taking_part"):
        mine, theirs = _flat(made.summary[name]), _flat(wanted.summary[name])
        mine, theirs = ({k: v for k, v in one.items() if _told(k)} for one in (mine, theirs))
        assert mine == pytest.approx(theirs, abs=1e-6)
    # the server goes by losses, and by the spread of the clients alone
    home = made.summary["taken_home"]
    assert (home["metric"], home["over"]) == ("loss", "clients")
    saved = made.clients["test_loss_local"] - made.clients["test_loss_personal"]
    assert home["local"]["difference"] == pytest.approx(-saved.mean())
    low, high = home["local"]["interval"]
    near = wanted.summary["taking_part"]["personal"]["interval"]
    assert [-high, -low] == pytest.approx(near, abs=0.2 * (high - low))
    # the curves themselves stay out of the record, and the objective is that of the training
    own = wanted.curves["own"]
    np.testing.assert_allclose(made.curves["mean"], mean_curve(own, SIZES), atol=1e-6)
    assert set(made.curves) == {"alpha", "mean", "scarcity", "noise"}
    assert made.metrics["objective"].tolist() == sorted(made.metrics["objective"], reverse=True)
    # for each client one curve up and one mean down; x once, and as the average to commit
    x = 64 * server.x[0].size
    assert made.summary["closing_bits_up"] == CLIENTS * CURVE
    assert made.summary["closing_bits_down"] == CLIENTS * (2 * x + MEAN)
    assert CURVE / 8 <= 200
    found = sx.Record.load(made.save(folder / "record"))
    assert found.summary["alpha"]["rule"] == "loo"


def _told(name: str) -> bool:
    """Whether it follows from what clients tell: the noise of their examples is not told."""
    return not name.endswith((" interval", " clearly_hurt"))


def test_a_federations_record_serves_newcomers_and_a_page(folder: Path) -> None:
    """A newcomer is told what one of a simulation is; the clients' own curves are in neither."""
    hospitals = clinics(folder)
    server = server_of(folder, hospitals)
    asked = {"data": "here", "model": "logistic", "method": "scafflix", "alpha": "auto"}
    config = {**asked, "l2": L2, "seed": 1, "classes": [1, -1]}
    made = record(server, serve(server, Direct(hospitals)), config, 1.0)
    found = sx.Record.load(made.save(folder / "record"))
    told, wanted = told_by(found), told_by(simulated())
    np.testing.assert_allclose(told.curve, wanted.curve, atol=1e-6)
    assert told[1:] == pytest.approx(wanted[1:])
    assert told.noise > 0
    rows, labels = federation().train.features[:12], federation().train.labels[:12]
    np.savez(folder / "new.npz", x=rows, y=labels)
    newcomer = adapt(found, folder / "new.npz")
    np.testing.assert_allclose(
        newcomer.models["local"][0], simulated().models["local"][0], atol=1e-6
    )
    assert 0 <= newcomer.clients["alpha"][0] <= 1
    (line,) = content(families([found]), None)["lines"]
    assert line["curves"] is None
    assert line["chosen"]["rule"] == "loo"


def _flat(summary: Mapping[str, Any]) -> dict[str, Any]:
    """The entries of the dictionaries in it, too, beside its own."""
    made: dict[str, Any] = {}
    for name, value in summary.items():
        inside = value.items() if isinstance(value, Mapping) else [("", value)]
        made |= {f"{name} {key}": v for key, v in inside}
    return made


def test_a_lost_curve_is_asked_for_again_and_changes_nothing(folder: Path) -> None:
    hospitals = clinics(folder)
    lost: list[Reply] = []

    def first_curve(name: str, reply: Reply | Failure) -> bool:
        if isinstance(reply, Curve) and name == AWAY and not lost:
            lost.append(reply)
            return True
        return False

    server, wire = server_of(folder, hospitals), Without(hospitals, first_curve)
    evaluations = serve(server, wire)
    again = [one for one in wire.seen if isinstance(one, Curve) and one.client == AWAY]
    assert len(again) == 2
    np.testing.assert_array_equal(again[0].curve[0], again[1].curve[0])
    alpha = [evaluations[name].alpha for name in hospitals]
    np.testing.assert_array_equal(alpha, simulated().clients["alpha"])


def test_who_is_away_at_the_end_chooses_when_the_server_is_started_again(folder: Path) -> None:
    hospitals = clinics(folder)
    server = server_of(folder, hospitals)

    class Missing(Direct):
        def exchange(
            self, requests: Mapping[str, Request]
        ) -> Iterable[tuple[str, Reply | Failure]]:
            ended = any(isinstance(request, Evaluate) for request in requests.values())
            yield from super().exchange(
                {name: one for name, one in requests.items() if not (ended and name == AWAY)}
            )

    made = record(server, serve(server, Missing(hospitals)), {}, 0.0)
    at = list(hospitals).index(AWAY)
    assert made.clients["alpha"][at] == 1
    assert made.summary["alpha"]["notes"] == {SILENT: 1}
    others = np.delete(simulated().curves["own"], at, axis=0)
    sizes = np.delete(SIZES, at)
    np.testing.assert_allclose(made.curves["mean"], mean_curve(others, sizes))
    assert not hospitals[AWAY].core.model_path(server.run).exists()
    again = make_server(folder, server.roster, learner(0).start(), rounds=ROUNDS, seed=1)
    made = record(again, serve(again, Direct(hospitals)), {}, 0.0)
    np.testing.assert_array_equal(made.clients["alpha"], simulated().clients["alpha"])


def test_whose_curve_never_comes_still_chooses_by_what_the_others_say(folder: Path) -> None:
    hospitals = clinics(folder)
    server = server_of(folder, hospitals)

    def curve(name: str, reply: Reply | Failure) -> bool:
        return name == AWAY and isinstance(reply, Curve)

    wire = Without(hospitals, curve)
    evaluations = serve(server, wire)
    asked = [m for m in wire.seen if isinstance(m, Evaluate) and m.others]
    assert sum(bool(message.point) for message in asked) == 1  # it is sent x again, the rest not
    x, at = Vector(server.x), list(hospitals).index(AWAY)
    found = learner(at).judged("auto", learner(at).optimum(), x, CLIENTS)
    assert server.others is not None
    assert evaluations[AWAY].alpha == judging.chosen(found, server.others).alpha[0]


def test_a_client_that_lost_the_final_model_is_sent_it_again(folder: Path) -> None:
    hospitals = clinics(folder)
    server = server_of(folder, hospitals)
    path = hospitals[AWAY].core.folder / f"{server.run}-final.safetensors"

    def forget(name: str, reply: Reply | Failure) -> bool:
        if isinstance(reply, Curve) and name == AWAY:
            path.unlink()
        return False

    evaluations = serve(server, Without(hospitals, forget))
    assert server.tally.counts["client_lost"] == 1
    alpha = [evaluations[name].alpha for name in hospitals]
    np.testing.assert_array_equal(alpha, simulated().clients["alpha"])


def test_the_last_question_repeated_has_the_same_answer(folder: Path) -> None:
    hospitals = clinics(folder)
    server, wire = server_of(folder, hospitals), Direct(hospitals)
    serve(server, wire)
    told = {m.client: m for m in wire.seen if isinstance(m, Evaluation)}
    (last,) = [m for m in wire.seen if isinstance(m, Evaluate) and m.others and m.number == 2]
    path = hospitals[AWAY].core.model_path(server.run)
    before = path.read_bytes()
    assert hospitals[AWAY].handle(last) == told[AWAY]
    assert path.read_bytes() == before


def spoiled(curve: Curve) -> dict[str, tuple[str, Curve]]:
    (values,) = curve.curve
    weight = np.arange(len(values)) == len(values) - 3
    return {
        "not from 0": ("range", curve._replace(curve=(values + 1,))),
        "huge": ("range", curve._replace(curve=(1e200 * values,))),
        "for all": ("range", curve._replace(curve=(np.where(weight, 1000, values),))),
        "for nobody": ("range", curve._replace(curve=(np.where(weight, 0, values),))),
        "too short": ("shape", curve._replace(curve=(values[1:],))),
        "NaN": ("not_finite", curve._replace(curve=(np.nan * values,))),
        "another's": ("unknown_client", curve._replace(client="client-0")),
        "another round": ("round", curve._replace(round=curve.round - 1)),
    }


def test_bad_curves_are_refused_and_are_in_no_mean(folder: Path) -> None:
    hospitals = clinics(folder)
    server = server_of(folder, hospitals)

    class Lying(Direct):
        tried = 0

        def exchange(
            self, requests: Mapping[str, Request]
        ) -> Iterable[tuple[str, Reply | Failure]]:
            for name, reply in super().exchange(requests):
                if isinstance(reply, Curve) and name == AWAY:
                    for kind, bad in spoiled(reply).values():
                        before = server.tally.counts[kind]
                        yield name, bad
                        assert server.tally.counts[kind] == before + 1
                        self.tried += 1
                yield name, reply

    wire = Lying(hospitals)
    serve(server, wire)
    assert wire.tried == 8
    own = simulated().curves["own"]
    assert server.others is not None
    expected = mean_curve(own, SIZES)
    np.testing.assert_allclose(server.others.curve, expected, atol=1e-6)


def test_a_client_refuses_a_mean_that_is_none(folder: Path) -> None:
    hospitals = clinics(folder)
    server, wire = server_of(folder, hospitals), Direct(hospitals)
    serve(server, wire)
    (last,) = [m for m in wire.seen if isinstance(m, Evaluate) and m.others and m.number == 2]
    curve, numbers = last.others
    for others, kind in (
        ((curve,), "shape"),
        ((curve, -numbers), "range"),
        ((curve, numbers * [1, -1]), "range"),
        ((curve + 1, numbers), "range"),
    ):
        found = hospitals[AWAY].handle(last._replace(others=others))
        assert isinstance(found, Refusal)
        assert found.kind == kind


@cache
def uneven() -> sx.data.Federation:
    """With a client of one example and one of few examples of one class."""
    random, parts = np.random.default_rng(4), {}
    for number, size in enumerate((40, 25, 60, 1, 12)):
        A = random.normal(size=(size, 3))
        score = A @ (np.ones(3) + random.normal(size=3)) + random.normal(size=size)
        parts[f"client-{number}"] = (A, np.where((score > 0) | (number == 4), 1, -1))
    return sx.data.from_clients(parts)


@pytest.mark.filterwarnings("ignore:alpha by")
@pytest.mark.parametrize("word", ["loo", "james-stein", "common"])
def test_every_rule_on_nodes_makes_the_choice_of_the_simulator(word: str) -> None:
    fed = uneven()
    whole = sx.Problem(fed, sx.models.logistic(), L2)
    x_star, x = sx.personalize(whole, 1.0).points, np.array([0.8, 1.1, 0.9])
    wanted = choose(whole, word, x_star, x)
    found = []
    for i in range(whole.n):
        mine = ConvexLearner(fed.take([i]), sx.models.logistic(), L2, classes=(-1, 1))
        found.append(mine.judged(word, Vector((x_star[i],)), Vector((x,)), whole.n))
    others = judging.mean_of(map(judging.curve_of, found))
    made = [judging.chosen(one, others) for one in found]
    np.testing.assert_allclose([one.alpha[0] for one in made], wanted.alpha, atol=1e-12)
    np.testing.assert_allclose([one.gain[0] for one in made], wanted.gain, atol=1e-12)
    assert [one.note[0] for one in made] == wanted.note.tolist()
    assert wanted.note[3]
    assert wanted.note[4]


def test_james_stein_asks_nobody(folder: Path) -> None:
    hospitals = clinics(folder, "james-stein")
    server, wire = server_of(folder, hospitals), Direct(hospitals)
    made = record(server, serve(server, wire), {}, 0.0)
    assert not any(isinstance(message, Curve) for message in wire.seen)
    assert made.summary["alpha"]["rule"] == "james-stein"
    assert not made.curves
    stars = np.stack([learner(k).optimum().tree[0] for k in range(CLIENTS)])
    wanted = choose(problem(), "james-stein", stars, server.x[0])
    np.testing.assert_allclose(made.clients["alpha"], wanted.alpha)


def test_a_network_on_a_node_judges_by_its_validation_part() -> None:
    random = np.random.default_rng(0)
    A, b = random.normal(size=(30, 4)).astype(np.float32), random.integers(0, 2, 30)
    rows = np.array([0, 30])
    part = sx.data.Examples(A, b, rows)
    fed = sx.data.Federation("one", ("a",), part, None, part)
    mine = NetworkLearner(fed, dense(4, 2, hidden=()))
    start = {name: np.float32(random.normal(size=leaf.shape)) for name, leaf in _leaves(mine)}
    x = Vector(tuple(start.values()))
    found = mine.judged("auto", 2 * x, x, CLIENTS)
    assert found.rule.name == "validation"
    weight, bias = sorted(x.tree, key=lambda leaf: -leaf.ndim)
    for alpha, loss in zip(GRID[::10], found.evidence.curves[0][::10], strict=True):
        logits = (2 - alpha) * (A @ weight + bias)
        expected = np.mean(np.log(np.exp(logits).sum(axis=1)) - logits[np.arange(30), b])
        assert loss == pytest.approx(expected, rel=1e-4)
    assert np.isnan(mine.test_loss(x))


def _leaves(learner: NetworkLearner) -> list[tuple[str, Any]]:
    return list(learner.named(learner.start()).items())


def test_rules_that_cannot_serve_are_one_sentence(folder: Path) -> None:
    with pytest.raises(sx.ScafflixError, match="the learner Quadratic has no rule"):
        ClientCore("a", 1.0, LEARNERS[0], folder, rule="auto")
    mine = ConvexLearner(uneven().take([0]), sx.models.logistic(), L2, classes=(-1, 1))
    with pytest.raises(sx.ScafflixError, match="no examples are held out for it"):
        ClientCore("a", 1.0, mine, folder, rule="validation")
    people = [ClientCore(n, 1.0, mine, folder, rule=r) for n, r in (("a", "loo"), ("b", "common"))]
    hospitals = {core.name: Hospital(lambda hook, core=core: core) for core in people}
    with pytest.raises(sx.ScafflixError, match="a by loo, b by common"):
        fresh_roster(hospitals)
    one = people[0].introduce(Hello(start=False))
    with pytest.raises(sx.ScafflixError, match="its rule for alpha is 'oracle'"):
        new_roster([one._replace(rule="oracle")])


@pytest.mark.parametrize(
    ("keys", "own", "words"),
    [
        ({"alpha": "loo", "model": "mine"}, True, "own model mine use validation"),
        ({"alpha": "james-stein", "model": "cnn"}, False, "network cnn use validation"),
        ({"alpha": "validation"}, False, "no examples are held out"),
        ({"alpha": "auto", "method": "ditto"}, False, "give alpha a number"),
        ({"alpha": "auto", "method": "ditto", "model": "mine"}, True, "give alpha a number"),
        ({"alpha": "auto:2"}, False, "the alpha to train at"),
    ],
)
def test_a_server_refuses_what_no_node_could_do(
    keys: dict[str, Any], own: bool, words: str
) -> None:
    with pytest.raises(sx.ScafflixError, match=words):
        checked(DeployConfig(data="nodes", **keys), own=own)


def test_nodes_on_one_machine_all_have_validation_examples_or_it_is_said(tmp_path: Path) -> None:
    table = tmp_path / "sites.csv"
    rows = [f"{site},{x},{x % 2}" for site, size in (("a", 9), ("b", 2)) for x in range(size)]
    table.write_text("\n".join(["site,x,label", *rows]) + "\n")
    keys: dict[str, Any] = {"data": str(table), "split": "column:site", "label": "label"}
    with pytest.raises(sx.ScafflixError, match="client b has none; give a larger validation"):
        write_nodes(
            DeployConfig(**keys, alpha="validation", validation=0.2), None, tmp_path / "nodes"
        )
    config, nodes = write_nodes(DeployConfig(**keys, alpha="auto"), None, tmp_path / "others")
    assert config.alpha == "auto"
    assert all("alpha" not in node for node in nodes)
