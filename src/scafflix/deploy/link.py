"""The server's side as processes: a SuperLink, and a job handed in to it."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

import tomli_w

from scafflix import durable
from scafflix.deploy.configuration import DeployConfig, text_of
from scafflix.deploy.processes import Processes, environment, wait_for_port
from scafflix.errors import ScafflixError
from scafflix.record import Record

NAME = "scafflix"  # of the connection in Flower's configuration
ROUND = re.compile(r"round (\d+)/(\d+) (.*)")
REGISTERED = re.compile(r'"node-id": "?(\d+)')
FINISHED = "scafflix: finished"  # the last line of a run that went well

Progress = Callable[[int, int, str], None]


class Link:
    """A SuperLink on this machine; nodes anywhere.

    `certificates` is a folder with ca.crt, server.crt and server.key: TLS. With `keys`, only
    nodes with one of these public keys are let in, each as the client that its key is named after:
    CLIENT.pub.
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
            raise ScafflixError("Node keys need TLS; give certificates too.")
        for key in keys:
            if key.suffix != ".pub":
                raise ScafflixError(f"{key} is no public key; give CLIENT.pub.")
        self.nodes: dict[str, int] = {}  # client -> the node that Flower knows by its key
        for name in ("logs", "flower", "cache", "server"):
            durable.new_folder(self.folder / name)
        variables = environment(self.folder / "flower", self.folder / "cache")
        self.processes = Processes(self.folder / "logs", variables)

    def start(self) -> None:
        """Up and ready; known nodes are registered."""
        words = ["--host", self.host, "--port", str(self.port)]
        link: dict[str, Any] = {"address": f"{self._near}:{self.port}"}
        if self.certificates is None:
            words.append("--insecure")
            link["insecure"] = True
        else:
            for option, name in (("ca-cert", "ca.crt"), ("cert", "server.crt")):
                words += [f"--ssl-{option}file", str(self.certificates / name)]
            words += ["--ssl-keyfile", str(self.certificates / "server.key")]
            link["root-certificates"] = str(self.certificates / "ca.crt")
        if self.keys:
            words.append("--enable-supernode-auth")
        text = tomli_w.dumps({"superlink": {"default": NAME, NAME: link}})
        (self.folder / "flower" / "config.toml").write_text(text)
        self.processes.start("superlink", "flower-superlink", *words)
        wait_for_port(self.port, self.processes, self._near)
        for key in self.keys:
            self.nodes[key.stem] = self._register(key)

    @property
    def _near(self) -> str:
        """How this machine reaches it itself."""
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
            raise ScafflixError(f"The node key {key} was not registered: {why}")
        return int(found[1])

    def run(
        self,
        config: DeployConfig,
        nodes: int,
        roster: Sequence[str] = (),
        *,
        new_epoch: bool = False,
        progress: Progress | None = None,
    ) -> Record:
        """Hand in the job and follow it to its end."""
        asked = {
            "settings": text_of(config),
            "folder": str(self.folder / "server"),
            "nodes": nodes,
            "roster": json.dumps(list(roster)),
            "keys": json.dumps(self.nodes),
            "new-epoch": new_epoch,
        }
        settings = self.folder / "flower" / "run.toml"
        settings.write_text(tomli_w.dumps(asked))
        app = resources.files("scafflix.deploy").joinpath("app")
        words = ("run", str(app), NAME, "--stream", "--run-config", str(settings))
        job = self.processes.start("job", "flwr", *words, piped=True)
        finished = False
        assert job.stdout is not None
        with (self.folder / "logs" / "job.log").open("a") as log:
            for line in job.stdout:
                log.write(line)
                log.flush()
                found = ROUND.search(line)
                if found and progress is not None:
                    progress(int(found[1]), int(found[2]), found[3].strip())
                finished = finished or FINISHED in line
        job.wait()
        if not finished:
            raise ScafflixError(
                f"The run did not finish: {self.processes.last_words('job')}. Give the same "
                "command again to go on from its last round."
            )
        return Record.load(self.folder / "server" / "record")


def node_words(
    superlink: str, settings: Path, port: int, ca: Path | None = None, key: Path | None = None
) -> list[str]:
    """The command line of a SuperNode, whose own settings are in a TOML file."""
    words = ["flower-supernode", "--superlink", superlink, "--port", str(port)]
    words += ["--node-config", str(settings)]
    words += ["--insecure"] if ca is None else ["--root-certificates", str(ca)]
    return words + (["--auth-supernode-private-key", str(key)] if key else [])
