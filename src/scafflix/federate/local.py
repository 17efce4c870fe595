"""A federation on this machine: a SuperLink and nodes as real processes on loopback.

Everything is in one folder: `nodes/` (each node's data and state), `server/` (checkpoints and
record) and `logs/`. The same command continues a run that was stopped.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

import tomli_w

from scafflix.federate.certificates import make_certificates, make_node_key
from scafflix.federate.configuration import DeployConfig, checked
from scafflix.federate.connection import Link, node_words
from scafflix.federate.page import Page
from scafflix.federate.partition import Node, write_nodes
from scafflix.federate.processes import Processes, alone, free_port
from scafflix.federate.roster import Roster
from scafflix.federate.settings import AS_IT_STOPPED, Restart
from scafflix.federate.status import Notice, Progress
from scafflix.record import Record


class LocalFederation:
    """The processes of one run; nodes can be killed and started again."""

    def __init__(
        self,
        folder: Path,
        config: DeployConfig,
        nodes: list[Node],
        *,
        secure: bool = False,
        page: str | None = None,
    ) -> None:
        self.config, self.nodes = config, nodes
        folder = folder.absolute()
        self.keys: list[Path] = []
        certificates = folder / "keys" if secure else None
        if certificates is not None:
            if not (certificates / "ca.crt").exists():
                make_certificates(certificates, ["localhost"])
            for node in nodes:
                path = certificates / node["client"]
                self.keys.append(path if path.exists() else make_node_key(certificates, path.name))
        public = [path.with_name(f"{path.name}.pub") for path in self.keys]
        self.link = Link(folder, free_port(), certificates=certificates, keys=public, page=page)

    @property
    def processes(self) -> Processes:
        """All processes that were started."""
        return self.link.processes

    def start(self) -> None:
        """Start the SuperLink and all nodes."""
        self.link.start()
        for number in range(len(self.nodes)):
            self.start_node(number)

    def node_words(
        self, number: int, key: Path | None = None, port: int | None = None
    ) -> list[str]:
        """The command line of one node, with its own key and the SuperLink's port unless others
        are given."""
        settings = self.link.folder / "flower" / f"node-{number}.toml"
        certificates = self.link.certificates
        ca = certificates and certificates / "ca.crt"
        key = key or (self.keys[number] if self.keys else None)
        known = {"key": str(key), "ca": str(ca)} if key and ca else {}
        settings.write_text(tomli_w.dumps(self.nodes[number] | known))
        return node_words(f"127.0.0.1:{port or self.link.port}", settings, ca, key)

    def start_node(self, number: int, key: Path | None = None) -> None:
        """Start one node."""
        self.processes.start(f"node-{number}", *self.node_words(number, key))

    def kill_node(self, number: int) -> None:
        """Kill a node, as a power failure would."""
        self.processes.kill(f"node-{number}")

    def run(
        self,
        progress: Progress | None = None,
        restart: Restart = AS_IT_STOPPED,
        notice: Notice = lambda sentence: None,
    ) -> Record:
        """Run the job to its end."""
        names = [node["client"] for node in self.nodes]
        return self.link.run(
            self.config, len(names), names, restart=restart, progress=progress, notice=notice
        )


def run_local(
    config: DeployConfig,
    folder: Path,
    nodes: int | None = None,
    *,
    learner: str | None = None,
    secure: bool = False,
    page: str | None = None,
    announce: Callable[[Page], None] = lambda page: None,
    restart: Restart = AS_IT_STOPPED,
    progress: Progress | None = None,
    notice: Notice = lambda sentence: None,
) -> Record:
    """Run a whole federation; no process that it starts outlives it."""
    folder, config = folder.absolute(), checked(config, own=learner is not None)
    with alone(folder):
        made, settings = write_nodes(config, nodes, folder / "nodes", learner)
        kept = Roster.load(folder / "server")
        left = {*restart.without, *(kept[0].left if kept else ())}
        present = [node for node in settings if node["client"] not in left]
        federation = LocalFederation(folder, made, present, secure=secure, page=page)
        with federation.link.page or nullcontext() as shown, federation.processes:
            if shown is not None:
                announce(shown)
            federation.start()
            return federation.run(progress, restart, notice)
