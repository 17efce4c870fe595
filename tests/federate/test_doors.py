"""Who may do what: nodes run our app alone, and what nodes reach is not for operators."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import subprocess
import sys
from base64 import b64encode
from collections.abc import MutableMapping
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import tomli_w

pytest.importorskip("flwr", reason="Flower is not installed; pip install 'scafflix[flower]'")

from flwr.cli.build import build_fab_from_disk
from starlette.responses import PlainTextResponse

from scafflix.federate.configuration import DeployConfig, checked
from scafflix.federate.connection import node_words
from scafflix.federate.local import LocalFederation
from scafflix.federate.partition import write_nodes
from scafflix.federate.processes import Processes, environment, free_port, wait_for_port
from scafflix_flower import own_app
from scafflix_flower.superlink import FOR_NODES, NodesOnly, OperatorOnly, superlink

pytestmark = pytest.mark.filterwarnings("ignore:GitWildMatchPattern")  # inside Flower

# the same name, publisher and version as ours; whoever imports it leaves a mark
THEIR_SERVER = """
import time
from pathlib import Path
from flwr.app import Message, RecordDict
from flwr.serverapp import ServerApp
Path({mark!r}, "server").touch()
app = ServerApp()

@app.main()
def main(grid, context):
    while not (nodes := list(grid.get_node_ids())):
        time.sleep(0.2)
    asked = [Message(RecordDict(), node, "query") for node in nodes]
    for reply in grid.send_and_receive(asked, timeout=300):
        print("reply:", reply.error.reason if reply.has_error() else "done", flush=True)
"""
THEIR_CLIENT = """
from pathlib import Path
from flwr.clientapp import ClientApp
Path({mark!r}, "client").touch()
app = ClientApp()
"""


@pytest.fixture
def other(tmp_path: Path) -> Path:
    """An app of somebody else's, and a folder for the marks that it leaves where it is run."""
    app, marks = tmp_path / "other", tmp_path / "marks"
    marks.mkdir()
    shutil.copytree(own_app.folder(), app, ignore=shutil.ignore_patterns("__pycache__"))
    for name, text in (("server", THEIR_SERVER), ("client", THEIR_CLIENT)):
        (app / "scafflix_app" / f"{name}.py").write_text(text.format(mark=str(marks)))
    return app


def flwr_run(
    app: Path, home: Path, secret: str = "", **link: object
) -> subprocess.CompletedProcess[str]:
    """Flower's own command, followed to the end of the run; maybe with an operator's secret."""
    home.mkdir()
    (home / "config.toml").write_text(tomli_w.dumps({"superlink": {"scafflix": link}}))
    if secret:
        known = {"authn-type": "oidc", "oidc-access-token": secret, "oidc-refresh-token": secret}
        stored = {
            f"flower.account-auth.{link['address']}.{name}": b64encode(value.encode()).decode()
            for name, value in known.items()
        }
        (home / "credentials.yaml").write_text(json.dumps(stored))  # JSON is valid YAML
    program = str(Path(sys.executable).parent / "flwr")
    words = [program, "run", str(app), "scafflix", "--stream"]
    variables = environment(home, home)
    return subprocess.run(words, env=variables, capture_output=True, text=True, timeout=300)


def test_nobody_but_the_operator_hands_in_a_run_and_nobody_another_app(
    other: Path, tmp_path: Path
) -> None:
    config = DeployConfig(data="synthetic:rows=20,features=5", clients=2, alpha=0.5, rounds=1)
    made, nodes = write_nodes(checked(config), 2, tmp_path / "f" / "nodes")
    federation = LocalFederation(tmp_path / "f", made, nodes, secure=True)
    with federation.processes:
        federation.start()
        link = federation.link
        link.wait()
        assert link.certificates is not None
        ca = {"root-certificates": str(link.certificates / "ca.crt")}
        at_nodes = flwr_run(other, tmp_path / "a", address=f"127.0.0.1:{link.port}", **ca)
        near = {"address": f"127.0.0.1:{link.control}", "insecure": True}
        stranger = flwr_run(other, tmp_path / "b", **near)
        secret = (link.folder / "flower" / "secret").read_text()
        operator = flwr_run(other, tmp_path / "c", secret, **near)
        record = federation.run()
        assert all(federation.processes.running[f"node-{k}"].poll() is None for k in range(2))
    log = (link.folder / "logs" / "superlink.log").read_text()
    assert at_nodes.returncode != 0
    assert "Refused '/v1/control/start-run'" in log
    assert stranger.returncode != 0
    assert operator.returncode != 0
    refusal = "Refused to run an app other than scafflix's own"
    assert refusal in " ".join(operator.stderr.replace("│", " ").split())  # Flower draws a box
    assert log.count("Created run") == 1  # ours
    assert not list((tmp_path / "marks").iterdir())
    assert record.clients["rounds"].tolist() == [1, 1]


def test_a_node_refuses_another_app_whatever_its_server_asks(other: Path, tmp_path: Path) -> None:
    port = free_port()
    _, nodes = write_nodes(
        DeployConfig(data="synthetic:rows=20,features=5", clients=1), 1, tmp_path / "nodes"
    )
    settings = tmp_path / "node.toml"
    settings.write_text(tomli_w.dumps(nodes[0]))
    with Processes(tmp_path, environment(tmp_path, tmp_path)) as processes:
        words = ("--insecure", "--host", "127.0.0.1", "--port", str(port))
        processes.start("superlink", "flower-superlink", *words)
        wait_for_port(port, processes)
        address = f"127.0.0.1:{port}"
        node = processes.start("node", *node_words(address, settings))
        run = flwr_run(other, tmp_path / "home", address=address, insecure=True)
        assert node.poll() is None
    assert [mark.name for mark in (tmp_path / "marks").iterdir()] == ["server"]  # its own server
    refusal = "Refused to run an app other than scafflix's own"
    assert re.search(f"reply: .*{refusal}", run.stdout)
    assert refusal in (tmp_path / "node.log").read_text()


def status_at_nodes(path: str) -> int:
    sent: list[MutableMapping[str, Any]] = []

    async def receive() -> Any:
        raise AssertionError("nothing of a request is read before it is let in")

    async def send(message: MutableMapping[str, Any]) -> None:
        sent.append(message)

    scope = {"type": "http", "method": "POST", "path": path, "client": ("10.0.0.1", 1)}
    scope["headers"] = [(b"content-length", b"5")]
    asyncio.run(NodesOnly(PlainTextResponse("served"))(scope, receive, send))
    return int(sent[0]["status"])


def test_only_the_paths_of_nodes_are_served_to_nodes() -> None:
    whole = superlink(b"secret", node_keys=True)
    paths = set(whole.openapi()["paths"])  # type: ignore[attr-defined]
    assert paths > FOR_NODES
    assert "/v1/control/start-run" in paths
    served = {path for path in [*paths, "/docs", "/"] if status_at_nodes(path) == 200}
    assert served == FOR_NODES == {path for path in paths if path.startswith("/v1/fleet/")}
    for path in ("//v1/control/start-run", "/v1/fleet/../control/start-run", "/v1/fleet/"):
        assert status_at_nodes(path) == 404


def test_the_operators_secret_is_asked_for() -> None:
    door = OperatorOnly(b"secret")
    assert door.validate_tokens_in_metadata([("flwr-oidc-access-token", "secret")])[0]
    for wrong in ([], [("flwr-oidc-access-token", "")], [("flwr-oidc-access-token", "Secret")]):
        assert not door.validate_tokens_in_metadata(wrong)[0]
    assert door.refresh_tokens([("flwr-oidc-refresh-token", "secret")]) == (None, None)


def test_an_app_is_ours_by_its_digest_and_not_by_its_name(other: Path) -> None:
    own_app.check(build_fab_from_disk(own_app.folder()))
    for fab in (build_fab_from_disk(other), b"", b"PK", os.urandom(100)):
        with pytest.raises(own_app.OtherAppError, match="an app other than"):
            own_app.check(fab)


def test_a_flower_that_works_otherwise_is_not_used() -> None:
    with pytest.raises(SystemExit, match="not known to be safe"):
        own_app.substitute(ModuleType("flwr.future"), "install_from_fab", own_app.check)
