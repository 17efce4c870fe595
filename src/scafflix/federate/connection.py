"""The server's processes: a SuperLink, and a job submitted to it."""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Sequence
from pathlib import Path

import tomli_w

from scafflix.core import durable
from scafflix.core.errors import EndedError, ScafflixError
from scafflix.federate.configuration import DeployConfig, text_of
from scafflix.federate.page import Address, Page
from scafflix.federate.processes import Processes, environment, free_port, wait_for_port
from scafflix.federate.settings import AS_IT_STOPPED, Restart
from scafflix.federate.status import Notice, Progress, Status, read_status
from scafflix.record import Record
from scafflix_flower import command
from scafflix_flower.secret import new_secret

LOOK = 0.05  # seconds between two looks at the status


class Link:
    """A SuperLink on this machine; nodes anywhere.

    Nodes connect to `host`:`port`, which serves nothing else. Runs are submitted on a loopback
    port, with a secret from a file that only the user of this process can read.

    `certificates` is a folder with ca.crt, server.crt and server.key, for TLS. With `keys`, only
    nodes with one of these public keys are admitted, each as the client its key is named after
    (CLIENT.pub). `page` is the address of the page that shows the run: HOST:PORT.
    """

    def __init__(
        self,
        folder: Path,
        port: int,
        host: str = "127.0.0.1",
        certificates: Path | None = None,
        keys: Sequence[Path] = (),
        page: str | None = None,
    ) -> None:
        self.folder, self.host, self.port = folder.absolute(), host, port
        self.certificates, self.keys = certificates and certificates.absolute(), keys
        if keys and certificates is None:
            raise ScafflixError("Node keys need TLS; give --certificates too.")
        for key in keys:
            if key.suffix != ".pub":
                raise ScafflixError(f"{key} is not a public key; give a file named CLIENT.pub.")
        where = None if page is None else Address.of(page)
        self.control = 0  # the port where runs are submitted, once it is started
        for name in ("logs", "flower", "cache", "server"):
            durable.new_folder(self.folder / name)
        variables = environment(self.folder / "flower", self.folder / "cache")
        self.processes = Processes(self.folder / "logs", variables)
        self.page: Page | None = None
        if where is not None:
            self.page = Page(self.folder, where, self.certificates, self._ended)

    def start(self) -> None:
        """Start the SuperLink and a job, which both take a few seconds to be ready."""
        self.control, secret = free_port(), self._own("secret")
        new_secret(secret)
        self._own("nodes.json").unlink(missing_ok=True)
        words = ["--host", self.host, "--port", str(self.port), "--control-port", str(self.control)]
        words += ["--secret-file", str(secret), "--nodes-file", str(self._own("nodes.json"))]
        if self.certificates is not None:
            words += ["--certificates", str(self.certificates)]
        for key in self.keys:
            words += ["--key", str(key.absolute())]
        self.processes.start("superlink", *command("superlink", *words))
        self._start_job()

    def wait(self) -> None:
        """Wait until nodes can connect."""
        wait_for_port(self.control, self.processes)
        wait_for_port(self.port, self.processes, self._near)
        if self.page is not None:
            self.page.ready = True

    def _ended(self) -> str:
        """Which process ended that should not have; empty if none did."""
        running = list(self.processes.running.items())
        return ", ".join(f"{name} ended" for name, process in running if process.poll())

    @property
    def nodes(self) -> dict[str, int]:
        """The node that Flower knows by the key of each client, once nodes can connect."""
        found: dict[str, int] = json.loads(self._own("nodes.json").read_text())
        return found

    def _own(self, name: str) -> Path:
        return self.folder / "flower" / name

    def _start_job(self) -> None:
        """Start a process for the next run, which waits for its settings."""
        self._own("run.toml").unlink(missing_ok=True)
        words = ["--control-port", str(self.control), "--secret-file", str(self._own("secret"))]
        words += ["--run-config", str(self._own("run.toml"))]
        self.processes.start("job", *command("job", *words))

    @property
    def _near(self) -> str:
        """The address at which this machine reaches the SuperLink."""
        return "127.0.0.1" if self.host in ("0.0.0.0", "::") else self.host

    def run(
        self,
        config: DeployConfig,
        nodes: int,
        roster: Sequence[str] = (),
        *,
        restart: Restart = AS_IT_STOPPED,
        progress: Progress | None = None,
        notice: Notice = lambda sentence: None,
    ) -> Record:
        """Submit a run and follow it to its end; `notice` is told who refuses, and why."""
        self.wait()
        server, name = self.folder / "server", secrets.token_hex(8)
        asked = {
            "job": name,
            "settings": text_of(config),
            "folder": str(server),
            "nodes": nodes,
            "roster": json.dumps(list(roster)),
            "keys": json.dumps(self.nodes),
            "new-epoch": restart.new_epoch,
            "from": "" if restart.back_to is None else str(restart.back_to),
            "without": json.dumps(restart.without),
        }
        if "job" not in self.processes.running:
            self._start_job()
        job, link = (self.processes.running[name] for name in ("job", "superlink"))
        durable.put(self._own("run.toml"), [tomli_w.dumps(asked).encode()])
        if self.page is not None:
            self.page.follow(name, nodes)
        status, ended = Status(name), False
        while not ended:
            time.sleep(LOOK)
            ended = job.poll() is not None or link.poll() is not None
            before, status = status, read_status(server, name)
            if progress is not None and status.done != before.done:
                progress(status.done, status.total, status.state)
            for sentence in status.notes[len(before.notes) :]:
                notice(sentence)
        self.processes.kill("job")
        if status.error:
            raise ScafflixError(status.error)
        if not status.finished:
            why = self.processes.last_words("job" if link.poll() is None else "superlink")
            raise EndedError(
                f"The run did not finish: {why.rstrip('.')}; run the same command again to "
                "continue after its last round."
            )
        return Record.load(server / "record")


def node_words(
    superlink: str, settings: Path, ca: Path | None = None, key: Path | None = None
) -> list[str]:
    """The command line of a node that reads its settings from a TOML file."""
    words = command("supernode", "--superlink", superlink, "--node-config", str(settings))
    words += [] if ca is None else ["--root-certificates", str(ca)]
    return words + (["--key", str(key)] if key else [])
