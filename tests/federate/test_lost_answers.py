"""Real processes over a wire that loses requests and answers, each with its connection."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from threading import Lock

import numpy as np
import pytest

pytest.importorskip("flwr", reason="Flower is not installed; pip install 'scafflix[flower]'")

from between import ANSWER, REQUEST, Between

import scafflix as sx
from scafflix.federate.configuration import DeployConfig, checked
from scafflix.federate.local import LocalFederation
from scafflix.federate.partition import write_nodes
from scafflix.runs.assembly import build_problem

NODES, ROUNDS = 2, 3
WAYS = ("pull-messages", "pull-object", "push-messages", "push-object", "confirm-message-received")

LOST = (ANSWER, "", "", REQUEST, "", ANSWER, ANSWER, "", REQUEST)


class Loser:
    """Of the first exchanges of each kind it loses some requests and some answers."""

    def __init__(self) -> None:
        self.seen: Counter[str] = Counter()
        self.lost: Counter[tuple[str, str]] = Counter()
        self.lock = Lock()

    def __call__(self, path: str) -> str:
        way = path.rpartition("/")[2]
        if way not in WAYS:
            return ""
        with self.lock:
            what = LOST[self.seen[way]] if self.seen[way] < len(LOST) else ""
            self.seen[way] += 1
            self.lost[way, what] += 1
        return what


def test_no_reply_is_lost_with_a_request_or_an_answer(tmp_path: Path) -> None:
    config = DeployConfig(data="synthetic:rows=20,features=5", clients=NODES, alpha=0.5, seed=1)
    asked, nodes = write_nodes(checked(config), NODES, tmp_path / "nodes")
    keys = {"rounds": ROUNDS, "minimum": NODES, "attempts": 1, "patience": 100.0}
    made = LocalFederation(tmp_path, DeployConfig(**{**vars(asked), **keys}), nodes)
    of_nodes, of_job = Loser(), Loser()
    with made.processes:
        made.link.start()
        made.processes.kill("job")
        with (
            Between(made.link.port, lose=of_nodes) as outside,
            Between(made.link.control, lose=of_job) as inside,
        ):
            made.link.control = inside.port
            for number in range(NODES):
                made.processes.start(f"node-{number}", *made.node_words(number, port=outside.port))
            record = made.run()
            made.processes.stop()
    for loser in (of_nodes, of_job):
        assert {(way, what) for way in WAYS for what in (REQUEST, ANSWER)} <= set(loser.lost)
    # nobody was waited for in vain, and nothing was counted twice
    assert record.summary["troubles"] == {}
    assert record.summary["dropped"] == record.summary["refused"] == 0
    assert record.clients["rounds"].tolist() == [ROUNDS] * NODES
    problem = build_problem(config)
    person = sx.personalize(problem, alpha=0.5)
    expected = sx.run(problem, person, sx.scafflix(sx.plan(problem, person)), rounds=ROUNDS, seed=1)
    np.testing.assert_allclose(
        record.models["global"], expected.models["global"], rtol=0, atol=1e-12
    )
