"""The Flower apps over an in-process Grid: parity, faults, and what is on the wire."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from threading import Event
from typing import Any

import numpy as np
import pytest

pytest.importorskip("flwr", reason="Flower is not installed; pip install 'scafflix[flower]'")

from flwr.app import Array, ArrayRecord, ConfigRecord, Context, RecordDict
from flwr.common.serde import recorddict_to_proto
from hospitals import ALPHA, Quadratic, flat, flix_optimum
from in_process_grid import InProcessGrid, over_the_wire
from safetensors.numpy import load_file

import cases
import scafflix as sx
from scafflix.core import durable
from scafflix.federate import flower_server
from scafflix.federate.configuration import DeployConfig, checked, config_from, text_of
from scafflix.federate.flower_client import client_app, core_of
from scafflix.federate.flower_server import plan_run, server_app
from scafflix.federate.flower_transport import FlowerTransport
from scafflix.federate.messages import Curve, Evaluation, Hello, Introduction, Refusal, Upload
from scafflix.federate.node import client_of
from scafflix.federate.parcels import KINDS
from scafflix.federate.partition import write_nodes
from scafflix.federate.roster import new_roster
from scafflix.federate.wire import pack, unpack
from scafflix.gradients import Exact, Minibatch
from scafflix.methods import METHODS
from scafflix.record import Record
from scafflix.runs.assembly import resolve
from scafflix.runs.config import RunConfig
from scafflix.runs.runner import COHORT, execute
from scafflix.simulate.bits import remembers
from scafflix.theory import without_theory

ROUNDS = 20


@pytest.fixture
def nodes(tmp_path: Path) -> dict[int, dict[str, Any]]:
    """Five nodes, each with a file of its own."""
    made = {}
    for k, (A, b) in enumerate(cases.examples("logistic")):
        path = tmp_path / f"data-{k}.npz"
        np.savez(path, x=A, y=b.astype(int))
        own = {"client": f"client-{k}", "data": str(path), "folder": str(tmp_path / f"node-{k}")}
        made[100 + k] = {**own, "alpha": float(cases.ALPHA[k]), "min-examples": 1}
    return made


def settings(**keys: Any) -> DeployConfig:
    chosen = {"data": "nodes", "rounds": ROUNDS, "seed": 3, "l2": cases.L2, "classes": (-1, 1)}
    return DeployConfig(**{**chosen, "patience": 5.0, **keys})


def grid_of(config: DeployConfig, nodes: dict[int, dict[str, Any]]) -> InProcessGrid:
    cores: dict[int, Any] = {}

    def make(context: Context) -> Any:  # once a node: compiling takes longer than a run
        if context.node_id not in cores:
            cores[context.node_id] = core_of(context)
        return cores[context.node_id]

    return InProcessGrid(client_app(make), nodes, {"settings": text_of(config)})


def deploy(config: DeployConfig, nodes: dict[int, dict[str, Any]], folder: Path) -> InProcessGrid:
    """The ServerApp to its end; all that was on the wire is in the grid."""
    grid = grid_of(config, nodes)
    asked = {"settings": text_of(config), "folder": str(folder), "nodes": len(nodes)}
    asked |= {"roster": "", "keys": "", "new-epoch": False, "from": "", "without": ""}
    server_app()(grid, Context(1, 1, {}, RecordDict(), asked))
    return grid


@pytest.mark.parametrize("name", cases.ON_LINEAR)
def test_flower_makes_the_models_of_the_simulator(
    name: str, nodes: dict[int, dict[str, Any]], tmp_path: Path
) -> None:
    case = cases.case("logistic")
    simulated = sx.run(case.problem, case.person, METHODS[name](case.plan), rounds=ROUNDS, seed=3)
    grid = deploy(settings(method=name), nodes, tmp_path / "server")
    made = Record.load(tmp_path / "server" / "record")
    assert np.abs(made.models["global"] - simulated.models["global"]).max() < 1e-6
    for k, node in enumerate(nodes.values()):
        own = Path(node["folder"]) / node["client"] / f"{made.summary['run']}-model.safetensors"
        kept = load_file(own)["model"]
        assert np.abs(kept - simulated.models["personal"][k]).max() < 1e-6
    for column in ("round", "iterations", "local_steps", "bits_up", "bits_down"):
        np.testing.assert_array_equal(made.metrics[column], simulated.metrics[column])
    # clients of these begin elsewhere than at the model, and others have one of their own
    if name not in ("nesterov", "five_gcs") and not simulated.summary["own_models"]:
        best = made.metrics["objective"] - simulated.metrics["objective_gap"]
        np.testing.assert_allclose(best, best[0], atol=1e-9)  # f~(x*), which nobody knows
    assert made.summary["refused"] == 0
    if name == "scafflix":
        _check_the_wire(grid.records, case, tmp_path, made.summary["run"])


@pytest.mark.parametrize("compressor", ["rand_k:0.4", "dithering:4"])
def test_a_compressed_upload_is_as_many_bytes_as_the_simulator_counts_and_a_small_header(
    compressor: str, nodes: dict[int, dict[str, Any]], tmp_path: Path
) -> None:
    case, rounds = cases.case("logistic"), 4
    method = sx.locodl(case.plan, compressor=compressor, omega=1.0)
    simulated = sx.run(case.problem, case.person, method, rounds=rounds, seed=3)
    config = settings(method=f"locodl:compressor={compressor},omega=1", rounds=rounds)
    grid = deploy(config, nodes, tmp_path / "server")
    made = Record.load(tmp_path / "server" / "record")
    assert np.abs(made.models["global"] - simulated.models["global"]).max() < 1e-9
    np.testing.assert_array_equal(made.metrics["bits_up"], simulated.metrics["bits_up"])
    uploads = [record for record in grid.records if record["message"]["type"] == "Upload"]
    numbers = sum(8 * array.nbytes for one in uploads for array in unpack(one).point)
    assert numbers == simulated.metrics["bits_up"][-1]
    for one in uploads:
        sent = recorddict_to_proto(one).ByteSize()
        assert sent < numbers / 8 / len(uploads) + 600


def test_if_every_alpha_is_0_each_takes_its_own_optimum_home_as_in_a_simulation(
    nodes: dict[int, dict[str, Any]], tmp_path: Path
) -> None:
    for node in nodes.values():
        node["alpha"] = 0.0
    deploy(settings(), nodes, tmp_path / "server")
    made, problem = Record.load(tmp_path / "server" / "record"), cases.case("logistic").problem
    person = sx.personalize(problem, alpha=0.0)
    simulated = sx.run(problem, person, sx.scafflix(sx.plan(problem, person)), rounds=ROUNDS)
    for record in (made, simulated):
        assert (record.summary["rounds"], record.summary["n_active"]) == (0, 0)
        assert record.metrics["bits_up"].tolist() == record.metrics["bits_down"].tolist() == [0]
    for k, node in enumerate(nodes.values()):
        kept = load_file(Path(node["folder"]) / node["client"] / "alone-model.safetensors")["model"]
        np.testing.assert_allclose(kept, simulated.models["personal"][k], atol=1e-9)


SOME_PLAN = without_theory(np.ones(1), np.ones(1), 0.5, Exact())


@pytest.mark.parametrize("name", [*cases.SOME_METHODS, "defaults"])
def test_flower_makes_the_networks_of_the_simulator(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SCAFFLIX_CACHE", str(tmp_path / "cache"))
    keys = {"data": "iris", "clients": 3, "split": "shuffled", "scale": "standard"}
    keys |= {"model": "dense", "optima": "none"}
    if name != "defaults":
        keys |= {"method": name, "batch": "full" if name == "gd" else 8, "cohort": 2}
    config = DeployConfig(**keys, rounds=ROUNDS, seed=3, every=ROUNDS, patience=5.0)
    simulated = execute(config)
    for_nodes, own = write_nodes(checked(config), 3, tmp_path)
    deploy(for_nodes, dict(enumerate(own, 100)), tmp_path / "server")
    made = Record.load(tmp_path / "server" / "record")
    common = {key: value for key, value in simulated.models.items() if "global" in key}
    mine, theirs = flat(list(made.models.values())), flat(list(common.values()))
    # single precision: what is rounded off in a round is forgotten, unless control variates keep it
    keeps = name == "defaults" or remembers(METHODS[name](SOME_PLAN))
    tolerance = 1e-5 if keeps else 1e-6
    assert np.linalg.norm(mine - theirs) < tolerance * np.linalg.norm(theirs)
    assert set(made.models) == set(common)
    for k, node in enumerate(own):
        path = Path(node["folder"]) / node["client"] / f"{made.summary['run']}-model.safetensors"
        kept = load_file(path)
        assert {f"global/{key}" for key in kept} == set(common)
        for key in kept if simulated.summary["own_models"] else ():
            np.testing.assert_allclose(kept[key], simulated.models[f"personal/{key}"][k], atol=1e-5)
    np.testing.assert_array_equal(made.metrics["local_steps"], simulated.metrics["local_steps"])
    np.testing.assert_array_equal(made.metrics["bits_up"], simulated.metrics["bits_up"])


@pytest.mark.parametrize("model", ["cnn", "a module of one's own"])
def test_what_is_left_out_is_filled_in_as_in_a_simulation(model: str) -> None:
    people = [Introduction(f"c{k}", 1.0, 0.0, 0.0, 0.0, 30, "float32[2]", ()) for k in range(12)]
    config = checked(DeployConfig(data="nodes", model=model), own=model != "cnn")
    method, chosen = plan_run(config, new_roster(people))
    simulated = resolve(RunConfig(data="nodes", model="cnn"))
    assert float(method.p) == simulated.p
    assert set(method.gamma.tolist()) == {simulated.stepsize}
    assert method.gradient == Minibatch(simulated.batch)
    assert method.settings["pace"] == simulated.pace == "steady"
    assert chosen.cohort == COHORT


def test_a_stepsize_in_words_is_refused_where_no_theory_gives_one() -> None:
    people = [Introduction("a", 1.0, 0.0, 0.0, 0.0, 30, "float32[2]", ())]
    config = DeployConfig(data="nodes", model="cnn", stepsize="common")
    with pytest.raises(sx.ScafflixError, match="for a network it must be a number above 0"):
        checked(config)
    with pytest.raises(sx.ScafflixError, match="Client a has no stepsize"):
        plan_run(config, new_roster(people))


def test_a_node_speaks_only_for_the_client_whose_key_it_has(
    nodes: dict[int, dict[str, Any]], tmp_path: Path
) -> None:
    config = settings(rounds=6, minimum=3, patience=1.0)
    grid = grid_of(config, nodes)
    keys = {own["client"]: node for node, own in nodes.items()} | {"client-5": 105}

    def watch(done: int, total: int, state: str) -> None:
        if done == 2:  # one with a key of its own calls itself by another's name
            grid.nodes[105] = {**nodes[100], "folder": str(tmp_path / "thief")}

    options: dict[str, Any] = {"nodes": 5, "poll": 0.0, "progress": watch}
    made = flower_server.run(grid, config, tmp_path / "s", keys=keys, **options)
    assert made.summary["troubles"]["key"] == 1
    assert made.clients["refused"].tolist() == [1, 0, 0, 0, 0]
    assert made.clients["rounds"].tolist() == [6] * 5  # undisturbed


def test_a_reply_that_stalls_or_breaks_its_reader_is_nobody_elses_trouble(
    nodes: dict[int, dict[str, Any]], tmp_path: Path
) -> None:
    config = settings(rounds=2, minimum=3, patience=3.0)
    grid, released = grid_of(config, nodes), Event()
    stalls, breaks, *_ = nodes
    pull = grid.pull_messages

    def pulled(message_ids: Iterable[str]) -> Iterable[Any]:
        found = list(pull(message_ids))
        for reply in found:
            training = reply.metadata.message_type == "train"
            if training and reply.metadata.src_node_id == stalls:
                released.wait(60)  # for parts that were announced
            if training and reply.metadata.src_node_id == breaks:
                raise KeyError("no such part")
        return found

    grid.pull_messages = pulled  # type: ignore[method-assign]
    made = flower_server.run(grid, config, tmp_path / "s", nodes=5, poll=0.0)
    released.set()
    assert made.clients["rounds"].tolist() == [0, 0, 2, 2, 2]
    assert made.clients["refused"].tolist() == [0, 2, 0, 0, 0]
    assert made.summary["troubles"]["error"] == 2  # no reply came


def test_nobody_but_its_receiver_can_tell_a_messages_number(
    nodes: dict[int, dict[str, Any]], tmp_path: Path
) -> None:
    grid = grid_of(settings(), nodes)
    transport = FlowerTransport(grid, 1.0)
    made = {transport._message(100, Hello(start=False)).metadata.group_id for _ in range(9)}
    assert len(made) == 9
    assert all(len(group.partition("-")[2]) == 32 for group in made)


def test_two_nodes_of_one_name_are_refused_before_a_run(
    nodes: dict[int, dict[str, Any]], tmp_path: Path
) -> None:
    config = settings(patience=1.0)
    twin = {**nodes, 105: nodes[100]}
    with pytest.raises(sx.ScafflixError, match="2 nodes use the client id client-0"):
        flower_server.run(grid_of(config, twin), config, tmp_path / "s", nodes=6, poll=0.0)


def _check_the_wire(records: list[RecordDict], case: Any, folder: Path, run: str) -> None:
    """Neither examples nor x_i* nor h_i are in any record, under any name."""
    numbers = np.array(list(_numbers(records)))
    secrets = [np.asarray(case.person.x_star).ravel()]
    secrets += [A.ravel() for A, _ in cases.examples("logistic")]
    for k in range(len(cases.ALPHA)):
        kept = durable.read(folder / f"node-{k}" / f"client-{k}" / f"{run}.safetensors")
        assert kept is not None
        secrets += [array.ravel() for array in kept[1][:1]]  # h_i; nothing pends at the end
    for value in np.concatenate(secrets):
        assert np.abs(numbers - value).min() > 1e-14


def _numbers(records: list[RecordDict]) -> Iterator[float]:
    for record in records:
        for part in record.values():
            if isinstance(part, ArrayRecord):
                for array in part.values():
                    yield from array.numpy().ravel().tolist()
            else:
                for value in part.values():
                    if isinstance(value, int | float) and np.isfinite(value):
                        yield float(value)


def test_a_dead_node_and_one_that_returns_under_another_number(
    nodes: dict[int, dict[str, Any]], tmp_path: Path
) -> None:
    config = settings(rounds=60, minimum=3)
    grid = grid_of(config, nodes)

    def watch(done: int, total: int, state: str) -> None:
        if done == 10:
            grid.dead.add(102)
        if done == 20:  # it comes back as somebody else, with the same folder
            grid.nodes[777] = grid.nodes.pop(102)

    made = flower_server.run(grid, config, tmp_path / "server", nodes=5, poll=0.0, progress=watch)
    assert made.summary["troubles"]["error"] == 10
    assert made.clients["rounds"].tolist() == [60, 60, 50, 60, 60]
    case = cases.case("logistic")
    best = cases.optima(case.problem, [case.person])[0]
    assert np.abs(made.models["global"] - np.asarray(best.x)).max() < 1e-3


def test_a_server_takes_up_its_run_where_it_stopped(
    nodes: dict[int, dict[str, Any]], tmp_path: Path
) -> None:
    config = settings()
    grid = grid_of(config, nodes)

    def stop(done: int, total: int, state: str) -> None:
        if done == 7:
            raise KeyboardInterrupt

    options: dict[str, Any] = {"nodes": 5, "poll": 0.0}
    with pytest.raises(KeyboardInterrupt):
        flower_server.run(grid, config, tmp_path / "a", progress=stop, **options)
    made = flower_server.run(grid, config, tmp_path / "a", **options)
    whole = flower_server.run(grid, config, tmp_path / "b", **options)
    np.testing.assert_array_equal(made.models["global"], whole.models["global"])
    assert made.metrics["round"].tolist() == list(range(ROUNDS + 1))


def test_too_few_nodes_are_one_sentence(nodes: dict[int, dict[str, Any]], tmp_path: Path) -> None:
    config = settings(patience=1.0)
    with pytest.raises(sx.ScafflixError, match="5 of 6 clients introduced themselves"):
        flower_server.run(grid_of(config, nodes), config, tmp_path / "s", nodes=6, poll=0.01)


def test_strangers_and_changed_clients_are_refused_and_counted(
    nodes: dict[int, dict[str, Any]], tmp_path: Path
) -> None:
    config = settings(rounds=4, minimum=3, patience=1.0)
    grid = grid_of(config, nodes)

    def watch(done: int, total: int, state: str) -> None:
        if done == 1:  # a stranger, and one that comes back with another alpha
            grid.nodes[900] = {**grid.nodes[100], "client": "stranger"}
            grid.nodes[901] = {**grid.nodes.pop(103), "alpha": 0.123}

    made = flower_server.run(grid, config, tmp_path / "s", nodes=5, poll=0.0, progress=watch)
    assert made.summary["refused"] == 2
    assert made.summary["troubles"]["unknown_client"] == 1
    assert made.summary["troubles"]["changed"] == 1
    assert made.clients["rounds"].tolist() == [4, 4, 4, 1, 4]


def numpy_backend(path: Path, config: DeployConfig) -> Quadratic:
    """What a user's MODULE:FUNCTION may look like."""
    return Quadratic(int(path.stem))


def test_a_backend_of_the_users_own_runs_on_flower(tmp_path: Path) -> None:
    config = settings(rounds=200)
    nodes = {}
    for k, alpha in enumerate(ALPHA):
        own = {"client": f"clinic-{k}", "data": str(k), "folder": str(tmp_path / f"node-{k}")}
        nodes[k + 2] = {**own, "alpha": alpha, "learner": "test_flower:numpy_backend"}
        nodes[k + 2]["min-examples"] = Quadratic.examples
    made = flower_server.run(grid_of(config, nodes), config, tmp_path / "s", nodes=5, poll=0.0)
    found = np.concatenate([made.models[name].ravel() for name in sorted(made.models)])
    assert np.linalg.norm(found - flix_optimum()[0]) < 1e-8


MESSAGES = [
    Hello(True),
    Introduction("c", 0.5, 0.1, 0.01, 1.0, 7, "float64[2]", (np.ones(2), np.zeros((0, 3)))),
    Upload("r", 0, "c", 3, -1, 2.5, float("nan"), (np.ones((2, 3), np.float32), np.arange(3.0))),
    Curve("r", 1, "c", 3, 2, (np.linspace(0.0, 1.0, 21), np.ones(1))),
    Curve("r", 1, "c", 3, 2, ()),
    Evaluation("r", 1, "c", 3, 2, 0.25, float("inf")),
    Refusal("r", 1, "c", 3, "lost", "Was weiß ich?"),
]


def test_the_wire_is_documented_field_by_field() -> None:
    page = (Path(__file__).parents[2] / "docs" / "protocol.md").read_text()
    tables = page.split("## What travels")[1].split("\n### ")[1:]
    documented = {}
    for table in tables:
        name, _, rest = table.partition("\n")
        documented[name] = tuple(re.findall(r"^\| `(\w+)` \|", rest, re.M))
    assert documented == {name: kind._fields for name, kind in KINDS.items()}


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: type(message).__name__)
def test_a_message_arrives_as_it_was_sent(message: Any) -> None:
    found = unpack(over_the_wire(pack(message)))
    assert type(found) is type(message)
    for mine, theirs in zip(found, message, strict=True):
        assert type(mine) is type(theirs)
        if isinstance(mine, tuple):
            for a, b in zip(mine, theirs, strict=True):
                assert a.dtype == b.dtype
                np.testing.assert_array_equal(a, b)
        else:
            np.testing.assert_equal(mine, theirs)


def _spoiled() -> Iterator[tuple[str, RecordDict]]:
    good = pack(MESSAGES[2])
    yield "nothing", RecordDict()
    yield "no such kind", RecordDict({"message": ConfigRecord({"type": "Pickle"})})
    yield "a missing field", RecordDict({"message": ConfigRecord({"type": "Upload"})})
    more = ConfigRecord({**good["message"], "x_star": 1.0})
    yield "a strange field", RecordDict({"message": more})
    yield "a strange record", RecordDict({**good, "data": ArrayRecord({})})
    bad = ArrayRecord({"0": Array("float64", (2,), "numpy.ndarray", b"\x80\x04not numpy")})
    yield "no array", RecordDict({**good, "point": bad})
    other = ArrayRecord({"0": Array("float64", (2,), "pickle", b"")})
    yield "another serialization", RecordDict({**good, "point": other})


@pytest.mark.parametrize(("what", "record"), list(_spoiled()), ids=lambda value: str(value)[:20])
def test_what_is_no_message_is_refused_in_one_sentence(what: str, record: RecordDict) -> None:
    with pytest.raises(sx.ScafflixError, match="A message cannot be read"):
        unpack(record)


def test_the_configuration_goes_over_the_wire_as_text() -> None:
    config = settings(method="i_scaffnew", cohort=2, mirror=True)
    assert config_from(text_of(config)) == config


@pytest.mark.parametrize(
    ("own", "words"),
    [
        ({"data": "x", "folder": "y"}, "client is missing"),
        ({"client": "a", "data": "x", "folder": "y", "alpha": "file"}, "alpha is 'file'"),
        ({"client": "a", "data": "x", "folder": "y", "learner": "no.module:f"}, "cannot be impo"),
    ],
)
def test_a_node_that_is_badly_set_up_is_one_sentence(own: dict[str, Any], words: str) -> None:
    with pytest.raises(sx.ScafflixError, match=words):
        client_of(settings(), own)


def test_a_rule_is_for_every_node_without_an_alpha_of_its_own(
    nodes: dict[int, dict[str, Any]], tmp_path: Path
) -> None:
    config = settings(alpha="auto", rounds=2)
    for node, own in nodes.items():
        if node != 102:
            del own["alpha"]
    nodes[101]["alpha"] = "loo"
    made = flower_server.run(grid_of(config, nodes), config, tmp_path / "s", nodes=5, poll=0.0)
    assert made.clients["alpha"][2] == cases.ALPHA[2]
    assert np.isnan(made.clients["expected_gain"]).tolist() == [False, False, True, False, False]
    assert made.summary["alpha"]["rule"] == "loo"
    assert "refused" not in made.summary["troubles"]
    assert made.curves["mean"][0] == 0


def test_the_roster_may_be_given(nodes: dict[int, dict[str, Any]], tmp_path: Path) -> None:
    config = settings(rounds=1)
    order = [f"client-{k}" for k in (3, 1)]
    made = flower_server.run(
        grid_of(config, nodes), config, tmp_path / "s", order=json.loads(json.dumps(order)), poll=0
    )
    assert made.clients["client"].tolist() == order
