"""The Flower apps over an in-process Grid: parity, faults, and what is on the wire."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("flwr", reason="Flower is not installed; pip install 'scafflix[flower]'")

from flwr.app import Array, ArrayRecord, ConfigRecord, Context, RecordDict
from hospitals import ALPHA, Quadratic, flix_optimum
from in_process_grid import InProcessGrid, over_the_wire

import cases
import scafflix as sx
from scafflix.deploy import durable, flower_server
from scafflix.deploy.configuration import DeployConfig, config_from, text_of
from scafflix.deploy.flower_client import client_app, core_of
from scafflix.deploy.flower_server import server_app
from scafflix.deploy.messages import Evaluation, Hello, Introduction, Refusal, Upload
from scafflix.deploy.node import client_of
from scafflix.deploy.wire import pack, unpack
from scafflix.record import Record

ROUNDS = 20


@pytest.fixture
def nodes(tmp_path: Path) -> dict[int, dict[str, Any]]:
    """Five nodes, each with a file of its own."""
    made = {}
    for k, (A, b) in enumerate(cases.examples("logistic")):
        path = tmp_path / f"data-{k}.npz"
        np.savez(path, x=A, y=b.astype(int))
        own = {"client": f"client-{k}", "data": str(path), "folder": str(tmp_path / f"node-{k}")}
        made[100 + k] = {**own, "alpha": float(cases.ALPHA[k])}
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


@pytest.mark.parametrize("name", ["scafflix", "nesterov"])
def test_flower_makes_the_models_of_the_simulator(
    name: str, nodes: dict[int, dict[str, Any]], tmp_path: Path
) -> None:
    case = cases.case("logistic")
    method = sx.METHODS[name](case.plan)
    simulated = sx.run(case.problem, case.person, method, rounds=ROUNDS, seed=3)
    config = settings(method=name)
    grid = grid_of(config, nodes)
    app_settings = {"settings": text_of(config), "folder": str(tmp_path / "server"), "nodes": 5}
    context = Context(1, 1, {}, RecordDict(), {**app_settings, "roster": "", "new-epoch": False})
    server_app()(grid, context)
    made = Record.load(tmp_path / "server" / "record")
    assert np.abs(made.models["global"] - simulated.models["global"]).max() < 1e-6
    for column in ("iterations", "bits_up", "bits_down"):
        np.testing.assert_array_equal(made.metrics[column], simulated.metrics[column])
    assert made.summary["refused"] == 0
    _check_the_wire(grid.records, case, tmp_path, made.summary["run"])


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
    config = settings(patience=0.05)
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


def numpy_backend(path: str, config: DeployConfig) -> Quadratic:
    """What a user's MODULE:FUNCTION may look like."""
    return Quadratic(int(Path(path).stem))


def test_a_backend_of_the_users_own_runs_on_flower(tmp_path: Path) -> None:
    config = settings(rounds=200)
    nodes = {}
    for k, alpha in enumerate(ALPHA):
        own = {"client": f"clinic-{k}", "data": str(k), "folder": str(tmp_path / f"node-{k}")}
        nodes[k + 2] = {**own, "alpha": alpha, "learner": "test_flower:numpy_backend"}
    made = flower_server.run(grid_of(config, nodes), config, tmp_path / "s", nodes=5, poll=0.0)
    found = np.concatenate([made.models[name].ravel() for name in sorted(made.models)])
    assert np.linalg.norm(found - flix_optimum()[0]) < 1e-8


MESSAGES = [
    Hello("r", True),
    Introduction("c", 0.5, 0.1, 0.01, 1.0, 7, "float64[2]", (np.ones(2), np.zeros((0, 3)))),
    Upload("r", 0, "c", 3, -1, 2.5, float("nan"), (np.ones((2, 3), np.float32), np.arange(3.0))),
    Evaluation("r", 1, "c", 3, 2, 0.25, float("inf")),
    Refusal("r", 1, "c", 3, "lost", "Was weiß ich?"),
]


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


def test_the_roster_may_be_given(nodes: dict[int, dict[str, Any]], tmp_path: Path) -> None:
    config = settings(rounds=1)
    order = [f"client-{k}" for k in (3, 1)]
    made = flower_server.run(
        grid_of(config, nodes), config, tmp_path / "s", order=json.loads(json.dumps(order)), poll=0
    )
    assert made.clients["client"].tolist() == order
