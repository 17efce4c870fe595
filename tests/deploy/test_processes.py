"""Real processes on loopback: a node killed in mid-run, TLS, and nodes that are not let in."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("flwr", reason="Flower is not installed; pip install 'scafflix[flower]'")

from scafflix import ScafflixError
from scafflix.deploy import durable
from scafflix.deploy.certificates import make_certificates, make_node_key
from scafflix.deploy.configuration import DeployConfig, checked
from scafflix.deploy.local import LocalFederation
from scafflix.deploy.partition import write_nodes
from scafflix.experiment import execute

DATA = "synthetic:rows=20,features=5"


def federation(folder: Path, clients: int, secure: bool = False, **keys: Any) -> LocalFederation:
    config = DeployConfig(data=DATA, clients=clients, alpha=0.5, seed=1, **keys)
    made, nodes = write_nodes(checked(config), clients, folder / "nodes")
    return LocalFederation(folder, made, nodes, secure=secure)


def test_a_node_killed_in_mid_run_and_started_again_loses_nothing(tmp_path: Path) -> None:
    made = federation(tmp_path, 3, rounds=6, minimum=2, patience=20.0)
    killed: list[int] = []

    def watch(done: int, total: int, state: str) -> None:
        if done == 2:
            made.kill_node(1)
            made.start_node(1)
            killed.append(done)

    with made.processes:
        made.start()
        started = list(made.processes.running.values())
        record = made.run(watch)
    assert killed == [2]
    assert record.summary["rounds"] == 6
    assert record.clients["rounds"].max() == 6
    assert record.clients["rounds"][1] >= 2  # it came back
    assert np.isfinite(record.clients["loss_personal"]).all()  # and took its model home
    assert all(process.poll() is not None for process in started)
    total = np.zeros(5)
    for node in made.nodes:
        path = Path(node["folder"]) / node["client"] / f"{record.summary['run']}.safetensors"
        kept = durable.read(path)
        assert kept is not None
        total += node["alpha"] * kept[1][0]
        assert np.abs(kept[1][0]).max() > 1e-3
    assert np.linalg.norm(total) < 1e-12


def test_tls_and_node_keys_let_in_the_registered_nodes_alone(tmp_path: Path) -> None:
    made = federation(tmp_path, 1, secure=True, rounds=2, patience=60.0)
    stranger = make_node_key(tmp_path, "stranger")
    with made.processes:
        made.link.start()
        made.start_node(0, key=stranger)
        process = made.processes.running.pop("node-0")
        until = time.monotonic() + 60
        while process.poll() is None and time.monotonic() < until:
            time.sleep(0.2)
        assert process.returncode not in (None, 0)  # refused
        made.start_node(0)
        record = made.run()
    config = DeployConfig(data=DATA, clients=1, alpha=0.5, seed=1, rounds=2)
    simulated = execute(config)
    assert np.abs(record.models["global"] - simulated.models["global"]).max() < 1e-6


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
