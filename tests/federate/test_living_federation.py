"""Real processes with TLS and node keys: each kind is killed once, and one node is late."""

from __future__ import annotations

from pathlib import Path
from threading import Timer

import numpy as np
import psutil
import pytest

pytest.importorskip("flwr", reason="Flower is not installed; pip install 'scafflix[flower]'")

import scafflix as sx
from scafflix import ScafflixError
from scafflix.core import durable
from scafflix.federate.configuration import DeployConfig, checked
from scafflix.federate.local import LocalFederation
from scafflix.federate.partition import write_nodes
from scafflix.runs.assembly import build_problem

ROUNDS, LATE = 12, 2  # rounds; the node that is late


def worker_of(made: LocalFederation, number: int) -> psutil.Process:
    """The worker of a node."""
    node = psutil.Process(made.processes.running[f"node-{number}"].pid)
    (worker,) = (one for one in node.children() if "scafflix.federate.worker" in one.cmdline())
    return worker


def test_a_federation_in_which_everything_is_killed_makes_the_models_of_the_simulator(
    tmp_path: Path,
) -> None:
    config = DeployConfig(data="synthetic:rows=20,features=5", clients=3, alpha=0.5, seed=1)
    asked, nodes = write_nodes(checked(config), 3, tmp_path / "nodes")
    keys = {"rounds": ROUNDS, "minimum": 3, "attempts": 50, "patience": 90.0}
    asked = DeployConfig(**{**vars(asked), **keys})
    made = LocalFederation(tmp_path, asked, nodes, secure=True)
    killed: list[str] = []

    def kill(done: int, total: int, state: str) -> None:
        if done >= 2 and not killed:
            killed.append("worker")
            worker_of(made, 0).kill()
        elif done >= 4 and len(killed) == 1:
            killed.append("node")
            made.kill_node(1)
            made.start_node(1)
        elif done >= 6 and len(killed) == 2:
            killed.append("server")
            made.processes.kill("superlink")

    with made.processes:
        made.link.start()
        for number in range(3):
            if number != LATE:
                made.start_node(number)
        late = Timer(5.0, made.start_node, [LATE])
        late.start()
        with pytest.raises(ScafflixError, match="run the same command again"):
            made.run(kill)
        late.join()
        stayed = [made.processes.running[f"node-{number}"] for number in range(3)]
        made.link.start()
        record = made.run(kill)
        assert all(process.poll() is None for process in stayed)
    assert killed == ["worker", "node", "server"]
    secret = (tmp_path / "flower" / "secret").read_text()
    private = [path.read_text().splitlines()[1] for path in made.keys]  # past the first line
    for log in (tmp_path / "logs").glob("*.log"):
        assert not [text for text in (secret, *private) if text in log.read_text()]

    problem = build_problem(config)
    person = sx.personalize(problem, alpha=0.5)
    method = sx.scafflix(sx.plan(problem, person))
    expected = sx.run(problem, person, method, rounds=ROUNDS, seed=1)
    np.testing.assert_allclose(
        record.models["global"], expected.models["global"], rtol=0, atol=1e-6
    )
    assert record.clients["rounds"].tolist() == [ROUNDS] * 3
    h = []
    for node in nodes:
        path = Path(node["folder"]) / node["client"] / f"{record.summary['run']}.safetensors"
        kept = durable.read(path)
        assert kept is not None
        h.append(kept[1][0])
    assert np.abs(h).max() > 1e-3
    assert np.linalg.norm(sum(h)) < 1e-12
