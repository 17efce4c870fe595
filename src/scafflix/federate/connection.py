"""The server's processes: a SuperLink, and a job submitted to it."""

from __future__ import annotations

import json
import re
import secrets
import subprocess
from base64 import b64encode
from collections.abc import Sequence
from importlib import resources
from pathlib import Path

import tomli_w

from scafflix.core import durable
from scafflix.core.errors import ScafflixError
from scafflix.federate.configuration import DeployConfig, text_of
from scafflix.federate.processes import Processes, environment, free_port, wait_for_port
from scafflix.federate.settings import AS_IT_STOPPED, Restart
from scafflix.federate.status import Progress, read_status
from scafflix.record import Record
from scafflix_flower import command
from scafflix_flower.secret import new_secret, write_for_owner

NAME = "scafflix"  # of the connection in Flower's configuration
REGISTERED = re.compile(r'"node-id": "?(\d+)')


class Link:
    """A SuperLink on this machine; nodes anywhere.

    Nodes connect to `host`:`port`, which serves nothing else. Runs are submitted on a loopback
    port, with a secret from a file that only the user of this process can read.

    `certificates` is a folder with ca.crt, server.crt and server.key, for TLS. With `keys`, only
    nodes with one of these public keys are admitted, each as the client its key is named after
    (CLIENT.pub).
    """

    def __init__(
        self,
        folder: Path,
        port: int,
        host: str = "127.0.0.1",
        certificates: Path | None = None,
        keys: Sequence[Path] = (),
    ) -> None:
        self.folder, self.host, self.port = folder.absolute(), host, port
        self.certificates, self.keys = certificates and certificates.absolute(), keys
        if keys and certificates is None:
            raise ScafflixError("Node keys need TLS; give --certificates too.")
        for key in keys:
            if key.suffix != ".pub":
                raise ScafflixError(f"{key} is not a public key; give a file named CLIENT.pub.")
        self.control = ""  # where runs are submitted, once it is up
        self.nodes: dict[str, int] = {}  # client -> the node that Flower knows by its key
        for name in ("logs", "flower", "cache", "server"):
            durable.new_folder(self.folder / name)
        variables = environment(self.folder / "flower", self.folder / "cache")
        self.processes = Processes(self.folder / "logs", variables)

    def start(self) -> None:
        """Start the SuperLink, wait until it is ready, and register the node keys."""
        control, secret = free_port(), self.folder / "flower" / "secret"
        self.control = f"127.0.0.1:{control}"
        words = ["--host", self.host, "--port", str(self.port), "--control-port", str(control)]
        words += ["--secret-file", str(secret)]
        if self.certificates is not None:
            words += ["--certificates", str(self.certificates)]
        if self.keys:
            words.append("--node-keys")
        self._let_in(self.control, new_secret(secret))
        self.processes.start("superlink", *command("superlink", *words))
        wait_for_port(control, self.processes)
        wait_for_port(self.port, self.processes, self._near)
        for key in self.keys:
            self.nodes[key.stem] = self._register(key)

    def _let_in(self, address: str, secret: str) -> None:
        """Give Flower's commands, when run in this folder, the address and the secret."""
        link = {"superlink": {"default": NAME, NAME: {"address": address, "insecure": True}}}
        (self.folder / "flower" / "config.toml").write_text(tomli_w.dumps(link))
        known = {"authn-type": "oidc", "oidc-access-token": secret, "oidc-refresh-token": secret}
        stored = {
            f"flower.account-auth.{address}.{name}": b64encode(value.encode()).decode()
            for name, value in known.items()
        }
        # JSON is valid YAML
        write_for_owner(self.folder / "flower" / "credentials.yaml", json.dumps(stored))

    @property
    def _near(self) -> str:
        """The address at which this machine reaches the SuperLink."""
        return "127.0.0.1" if self.host in ("0.0.0.0", "::") else self.host

    def _register(self, key: Path) -> int:
        words = ("supernode", "register", str(key.absolute()), NAME, "--format", "json")
        process = self.processes.start("register", "flwr", *words, piped=True)
        try:
            told, _ = process.communicate(timeout=60)
            self.processes.running.pop("register")
        except subprocess.TimeoutExpired:
            told = "no answer within 60 seconds"
            self.processes.kill("register")
        found = REGISTERED.search(told)
        if found is None:
            why = " ".join(told.split())[-500:]
            raise ScafflixError(f"The node key {key} could not be registered: {why}")
        return int(found[1])

    def run(
        self,
        config: DeployConfig,
        nodes: int,
        roster: Sequence[str] = (),
        *,
        restart: Restart = AS_IT_STOPPED,
        progress: Progress | None = None,
    ) -> Record:
        """Submit the job and follow it to its end."""
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
        settings = self.folder / "flower" / "run.toml"
        settings.write_text(tomli_w.dumps(asked))
        app = resources.files("scafflix.federate").joinpath("app")
        words = ("run", str(app), NAME, "--stream", "--run-config", str(settings))
        job = self.processes.start("job", "flwr", *words, piped=True)
        shown = read_status(server, name)
        assert job.stdout is not None
        with (self.folder / "logs" / "job.log").open("a") as log:
            for line in job.stdout:
                log.write(line)
                log.flush()
                status = read_status(server, name)
                if progress is not None and status.done != shown.done:
                    progress(status.done, status.total, status.state)
                shown = status
        job.wait()
        status = read_status(server, name)
        if status.error:
            raise ScafflixError(status.error)
        if not status.finished:
            why = self.processes.last_words("job")
            raise ScafflixError(
                f"The run did not finish: {why.rstrip('.')}; run the same command again to "
                "continue after its last round."
            )
        return Record.load(server / "record")


def node_words(
    superlink: str, settings: Path, port: int, ca: Path | None = None, key: Path | None = None
) -> list[str]:
    """The command line of a SuperNode that reads its settings from a TOML file."""
    words = command("supernode", "--superlink", superlink, "--port", str(port))
    words += ["--node-config", str(settings), "--secret-file", str(settings.with_suffix(".secret"))]
    words += ["--insecure"] if ca is None else ["--root-certificates", str(ca)]
    return words + (["--auth-supernode-private-key", str(key)] if key else [])
