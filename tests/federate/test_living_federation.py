"""Real processes with TLS and node keys, killed at random moments and started again, each as a
service manager would, over a wire that somebody meddles with; one node is late."""

from __future__ import annotations

import json
import os
import random
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path
from threading import Event, Thread, Timer
from typing import Any

import numpy as np
import psutil
import pytest

pytest.importorskip("flwr", reason="Flower is not installed; pip install 'scafflix[flower]'")

from between import Between

import scafflix as sx
from scafflix import ScafflixError
from scafflix.core import durable
from scafflix.federate.configuration import DeployConfig, checked
from scafflix.federate.local import LocalFederation
from scafflix.federate.partition import write_nodes
from scafflix.federate.processes import Processes
from scafflix.federate.status import FILE
from scafflix.record import Record
from scafflix.runs.assembly import build_problem

WORKER = "scafflix.federate.worker"
NODES, SERVER, NODE = 3, ("superlink", "job"), ("node", "worker")
FEW, ALL = (4, 6), (100, 50)  # kills, and rounds
TAIL = 3  # rounds at the end without a new kill, so that the last one falls into the run
SOON, LATER = 0.3, 2.0  # seconds within which a kill follows: about a round; a restart
MEDDLING = 0.01  # the share of what passes on the wire to which something is done
LATE = 3.0  # seconds after which the last node joins


class Meddler:
    """Now and then it alters, repeats, delays or ends what passes on the wire."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.done: Counter[str] = Counter()

    def __call__(self, data: bytes) -> bytes:
        if self.random.random() > MEDDLING:
            return data
        what = self.random.choice(("altered", "repeated", "delayed", "ended"))
        self.done[what] += 1
        if what == "altered":
            place = self.random.randrange(len(data))
            return data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :]
        if what == "delayed":
            time.sleep(self.random.uniform(0, LATER))
            return data
        return 2 * data if what == "repeated" else b""


class Site(Thread):
    """A node on a machine that starts it again whenever it ends."""

    def __init__(self, processes: Processes, name: str, words: list[str]) -> None:
        super().__init__(daemon=True)
        self.processes, self.node, self.words = processes, name, words
        self.process = processes.start(name, *words)
        self.restarts = 0
        self.closed = Event()

    def run(self) -> None:
        while self.process.wait() and not self.closed.is_set():
            self.process = self.processes.start(self.node, *self.words)
            self.restarts += 1


class Killer(Thread):
    """Kills one process after another, two a round."""

    def __init__(
        self, made: LocalFederation, sites: Processes, kills: int, rounds: int, seed: int
    ) -> None:
        super().__init__(daemon=True)
        self.made, self.sites, self.kills, self.rounds = made, sites, kills, rounds
        self.random = random.Random(seed)
        self.killed: Counter[str] = Counter()
        self.closed = Event()

    def run(self) -> None:
        victims = [(SERVER + NODE)[k % 4] for k in range(self.kills)]  # as often each
        self.random.shuffle(victims)
        for number, victim in enumerate(victims):
            due = number * (self.rounds - TAIL) // self.kills
            while (done := self.rounds_done()) < due and not self.closed.is_set():
                time.sleep(0.02)
            time.sleep(self.random.uniform(0, LATER if done == due else SOON))
            while not self.closed.is_set() and not self.kill(victim):
                time.sleep(0.02)  # it is not running just now

    def rounds_done(self) -> int:
        """By the last job that told."""
        with suppress(FileNotFoundError):
            return int(json.loads((self.made.link.folder / "server" / FILE).read_text())["done"])
        return 0

    def kill(self, what: str) -> bool:
        name = what if what in SERVER else f"node-{self.random.randrange(NODES)}"
        process = (self.made.processes if what in SERVER else self.sites).running.get(name)
        with suppress(psutil.Error):
            ended = process is None or process.poll() is not None
            victim = None if ended else psutil.Process(process.pid)
            if victim is not None and what == "worker":
                found = [one for one in victim.children() if WORKER in one.cmdline()]
                victim = found[0] if found else None
            if victim is not None:
                victim.kill()
                self.killed[what] += 1
                return True
        return False


def finished(made: LocalFederation) -> tuple[Record, int]:
    """The record of a server that is started again until it finishes, and how often it was."""
    failures = 0
    while True:
        try:
            made.link.start()
            return made.run(), failures
        except ScafflixError:
            failures += 1
            made.processes.stop()  # as the command does when it ends


def controls(nodes: list[Any], run: str) -> list[Any]:
    """h_i, as each node keeps it."""
    found = []
    for node in nodes:
        kept = durable.read(Path(node["folder"]) / node["client"] / f"{run}.safetensors")
        assert kept is not None
        found.append(kept[1][0])
    return found


def test_kills_of_anything_at_random_moments_leave_the_models_of_the_simulator(
    torture: bool, tmp_path: Path
) -> None:
    kills, rounds = ALL if torture else FEW
    config = DeployConfig(data="synthetic:rows=20,features=5", clients=NODES, alpha=0.5, seed=1)
    asked, nodes = write_nodes(checked(config), NODES, tmp_path / "nodes")
    keys = {"rounds": rounds, "minimum": NODES, "attempts": 1000, "patience": 45.0}
    made = LocalFederation(tmp_path, DeployConfig(**{**vars(asked), **keys}), nodes, secure=True)
    machines = Processes(made.processes.logs, made.processes.variables)
    seed = int(os.environ.get("SCAFFLIX_KILL_SEED", "0"))
    killer, meddler = Killer(made, machines, kills, rounds, seed), Meddler(seed)
    with Between(made.link.port, meddler) as wire, machines, made.processes:

        def site(number: int) -> Site:
            return Site(machines, f"node-{number}", made.node_words(number, port=wire.port))

        sites = [site(k) for k in range(NODES - 1)]
        for thread in (*sites, killer):
            thread.start()

        def join_late() -> None:
            sites.append(site(NODES - 1))
            sites[-1].start()

        late = Timer(LATE, join_late)
        late.start()
        record, failures = finished(made)
        for thread in (killer, *sites):
            thread.closed.set()
        killer.join()
        machines.stop()
        for thread in sites:
            thread.join()  # one may have started its node again just now, which ends here
    assert killer.killed.total() == kills
    # nobody else ended, and nothing else failed
    assert sum(one.restarts for one in sites) <= killer.killed["node"]
    assert meddler.done.total() > 0
    assert failures <= sum(killer.killed[name] for name in SERVER)
    secrets = [(tmp_path / "flower" / "secret").read_text()]
    secrets += [path.read_text().splitlines()[1] for path in made.keys]  # past the first line
    for log in (tmp_path / "logs").glob("*.log"):
        assert not [text for text in secrets if text in log.read_text()]

    problem = build_problem(config)
    person = sx.personalize(problem, alpha=0.5)
    expected = sx.run(problem, person, sx.scafflix(sx.plan(problem, person)), rounds=rounds, seed=1)
    off = np.abs(record.models["global"] - expected.models["global"]).max()
    h = controls(nodes, record.summary["run"])
    print(f"{dict(killer.killed)}, the server started again {failures} times, {rounds} rounds,")
    print(f"{dict(meddler.done)} of what passed in {wire.connections} connections:")
    print(f"models differ by {off:.1e}, the sum of h_i from 0 by {np.linalg.norm(sum(h)):.1e}")
    assert record.clients["rounds"].tolist() == [rounds] * NODES  # each counted once
    assert off < 1e-12
    assert np.abs(h).max() > 1e-3
    assert np.linalg.norm(sum(h)) < 1e-12
