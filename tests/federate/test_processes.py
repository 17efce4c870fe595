"""Real processes on loopback: a node that leaves, TLS, and nodes that are not let in."""

from __future__ import annotations

import subprocess
import time
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

pytest.importorskip("flwr", reason="Flower is not installed; pip install 'scafflix[flower]'")

from scafflix import ScafflixError
from scafflix.core import durable
from scafflix.federate.certificates import make_certificates, make_node_key
from scafflix.federate.configuration import DeployConfig, checked
from scafflix.federate.connection import Link
from scafflix.federate.flower_server import plan_run
from scafflix.federate.local import LocalFederation
from scafflix.federate.messages import Hello, Introduction
from scafflix.federate.node import client_of
from scafflix.federate.partition import write_nodes
from scafflix.federate.processes import Processes, environment, free_port
from scafflix.federate.roster import new_roster
from scafflix.federate.server import ServerCore
from scafflix.federate.settings import AS_IT_STOPPED, Restart
from scafflix.record import Record

DATA = "synthetic:rows=20,features=5"


def federation(folder: Path, *, secure: bool = False, **keys: Any) -> LocalFederation:
    config = DeployConfig(data=DATA, clients=3, alpha=0.5, seed=1, **keys)
    made, nodes = write_nodes(checked(config), 3, folder / "nodes")
    return LocalFederation(folder, made, nodes, secure=secure)


def reference(made: LocalFederation, folder: Path, away: str) -> ServerCore:
    """The same clients in this process: two rounds of all, two without one that is away, two of
    the others alone."""
    cores = {n["client"]: client_of(made.config, {**n, "folder": str(folder)}) for n in made.nodes}
    people = [core.handle(Hello(start=True)) for core in cores.values()]
    start = cast(Introduction, people[0]).start
    all_of = new_roster([cast(Introduction, one)._replace(start=()) for one in people])
    durable.new_folder(folder / "server")
    for rounds, roster in ((2, all_of), (4, all_of), (6, all_of.without([away]))):
        method, settings = plan_run(replace(made.config, rounds=rounds), roster)
        core = ServerCore(folder / "server", roster, method, start, settings)
        while not core.done:
            for name, request in core.requests().items():
                if rounds == 2 or name != away:
                    core.receive(name, cores[name].handle(request))
            core.close()
    return core


def test_a_node_that_leaves_for_good_is_waited_for_until_it_is_taken_out(tmp_path: Path) -> None:
    made = federation(tmp_path, minimum=2, attempts=20)
    asked, away = made.config, made.nodes[1]["client"]
    with made.processes:
        made.start()
        made.config = replace(asked, rounds=2, patience=90.0)
        made.run()
        made.kill_node(1)
        rounds = []
        for count, restart in ((4, AS_IT_STOPPED), (6, Restart(without=(away,)))):
            for name in ("superlink", "job"):  # the operator starts the server again
                if name in made.processes.running:
                    made.processes.kill(name)
            made.link.start()
            made.config = replace(asked, rounds=count, patience=5.0)
            if restart.without:
                made.nodes = [node for node in made.nodes if node["client"] != away]
            record = made.run(restart=restart)
            rounds.append(record.clients["rounds"].tolist())
        assert made.processes.running["node-0"].poll() is None
        assert made.processes.running["node-2"].poll() is None
    assert rounds == [[4, 2, 4], [6, 6]]
    made.nodes = federation(tmp_path, minimum=2, attempts=20).nodes
    expected = reference(made, tmp_path / "reference", away)
    np.testing.assert_allclose(record.models["global"], expected.x[0], rtol=0, atol=1e-12)


def test_the_commands_of_an_operator_train_a_network_among_registered_nodes(
    tmp_path: Path,
) -> None:
    random, port = np.random.default_rng(0), free_port()
    processes = Processes(tmp_path, environment(tmp_path, tmp_path))
    keys, server = tmp_path / "keys", tmp_path / "run"
    config = tmp_path / "run.toml"
    lines = ["data = 'nodes'", "model = 'cnn'", "batch = 4", "p = 0.9", "rounds = 1"]
    config.write_text("\n".join([*lines, "stepsize = 0.001", "validation = 0.0"]))

    def scafflix(name: str, *words: object) -> subprocess.Popen[str]:
        return processes.start(name, "scafflix", "deploy", *map(str, words))

    def node(key: str, client: str) -> subprocess.Popen[str]:
        images = random.integers(0, 255, (10, 28, 28), np.uint8)
        np.savez(tmp_path / f"{key}.npz", x=images, y=random.integers(0, 62, 10))
        words = ("--superlink", f"127.0.0.1:{port}", "--client", client, "--ca", keys / "ca.crt")
        words += ("--data", tmp_path / f"{key}.npz", "--folder", tmp_path / f"state-{key}")
        words += ("--min-examples", 4)
        return scafflix(f"node-{key}", "node", *words, "--key", keys / key)

    with processes:
        names = [word for name in ("a", "b", "stranger") for word in ("--client", name)]
        made = scafflix("keys", "keys", "--out", keys, "--host", "fed.example.org", *names)
        assert made.wait(300) == 0
        words = ["--config", config, "--nodes", 2, "--port", port, "--certificates", keys]
        words += ["--key", keys / "a.pub", "--key", keys / "b.pub", "--out", server]
        serving = scafflix("server", "server", *words)
        while "waiting for 2 nodes" not in (tmp_path / "server.log").read_text():
            assert serving.poll() is None, processes.last_words("server")
            time.sleep(0.2)
        stranger = node("stranger", "a")
        assert stranger.wait(300) != 0  # while there is a server that refuses it
        node("a", "a")
        node("b", "b")
        assert serving.wait(600) == 0, processes.last_words("server")
    record = Record.load(server / "server" / "record")
    assert record.clients["client"].tolist() == ["a", "b"]
    assert record.clients["rounds"].tolist() == [1, 1]
    assert record.summary["final_objective"] < record.metrics["objective"][0]
    assert (tmp_path / "state-a" / "a" / f"{record.summary['run']}-model.safetensors").exists()


def test_a_secure_federation_keeps_the_keys_it_began_with(tmp_path: Path) -> None:
    first = federation(tmp_path, secure=True)
    before = [path.read_bytes() for path in first.keys]
    again = federation(tmp_path, secure=True)
    assert [path.name for path in again.keys] == [node["client"] for node in again.nodes]
    assert [path.read_bytes() for path in again.keys] == before
    assert [key.name for key in again.link.keys] == [f"{path.name}.pub" for path in again.keys]


def test_a_server_takes_public_keys_alone(tmp_path: Path) -> None:
    key = make_node_key(tmp_path, "clinic")
    with pytest.raises(ScafflixError, match="not a public key"):
        Link(tmp_path, 1, certificates=tmp_path, keys=[key])


def test_keys_are_not_replaced_and_are_for_their_owner_alone(tmp_path: Path) -> None:
    make_certificates(tmp_path, ["localhost", "127.0.0.1"])
    key = make_node_key(tmp_path, "clinic")
    assert key.stat().st_mode & 0o077 == 0
    assert (tmp_path / "server.key").stat().st_mode & 0o077 == 0
    with pytest.raises(ScafflixError, match="exists"):
        make_certificates(tmp_path, ["localhost"])
    with pytest.raises(ScafflixError, match="exists"):
        make_node_key(tmp_path, "clinic")


def test_as_many_nodes_as_clients_are_needed(tmp_path: Path) -> None:
    config = DeployConfig(data=DATA, clients=3)
    with pytest.raises(ScafflixError, match="3 clients in the data, but 2 nodes"):
        write_nodes(config, 2, tmp_path)
