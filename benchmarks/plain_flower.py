"""A plain Flower app that only returns its arrays, on Flower's own processes as they come."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import tomli_w

from scafflix.federate.processes import Processes, environment, free_port, wait_for_port

PROJECT = """
[project]
name = "echo"
version = "1.0.0"
license = "Apache-2.0"
dependencies = []

[tool.flwr.app]
publisher = "benchmark"

[tool.flwr.app.components]
serverapp = "echo.server:app"
clientapp = "echo.client:app"

[tool.flwr.app.config]
numbers = 1
nodes = 1
rounds = 1
seconds = ""
"""

SERVER = """
import json
import time
from pathlib import Path

import numpy as np
from flwr.app import Array, ArrayRecord, Message, RecordDict
from flwr.serverapp import ServerApp

app = ServerApp()


@app.main()
def main(grid, context):
    asked = context.run_config
    while len(nodes := list(grid.get_node_ids())) < asked["nodes"]:
        time.sleep(0.2)
    x, seconds = np.zeros(asked["numbers"], np.float32), []
    for number in range(asked["rounds"]):
        began = time.monotonic()
        record = {"x": ArrayRecord({"x": Array.from_numpy_ndarray(x)})}
        sent = [Message(RecordDict(record), node, "train") for node in nodes]
        replies = list(grid.send_and_receive(sent))
        assert not any(reply.has_error() for reply in replies)
        arrays = [reply.content["x"]["x"].numpy() for reply in replies]
        x = sum(arrays) / len(arrays) + 1
        seconds.append(time.monotonic() - began)
    Path(asked["seconds"]).write_text(json.dumps(seconds))
"""

CLIENT = """
from flwr.app import Message
from flwr.clientapp import ClientApp

app = ClientApp()


@app.train()
def train(message, context):
    return Message(message.content, reply_to=message)
"""


def seconds_of_rounds(numbers: int, nodes: int, rounds: int, folder: Path) -> list[float]:
    """How long every round takes."""
    package = folder / "app" / "echo"
    package.mkdir(parents=True)
    (folder / "app" / "pyproject.toml").write_text(PROJECT)
    for name, text in (("__init__", '"""Echo."""'), ("server", SERVER), ("client", CLIENT)):
        (package / f"{name}.py").write_text(text)
    port, told = free_port(), folder / "seconds.json"
    home = folder / "home"
    home.mkdir()
    link = {"address": f"127.0.0.1:{port}", "insecure": True}
    (home / "config.toml").write_text(tomli_w.dumps({"superlink": {"plain": link}}))
    settings = {"numbers": numbers, "nodes": nodes, "rounds": rounds, "seconds": str(told)}
    (folder / "run.toml").write_text(tomli_w.dumps(settings))
    with Processes(folder, environment(home, home)) as processes:
        words = ("--insecure", "--host", "127.0.0.1", "--port", str(port))
        processes.start("superlink", "flower-superlink", *words)
        wait_for_port(port, processes)
        for number in range(nodes):
            here = ("--host", "127.0.0.1", "--port", str(free_port()))
            superlink = ("--superlink", link["address"], "--insecure")
            processes.start(f"node-{number}", "flower-supernode", *superlink, *here)
        words = (str(folder / "app"), "plain", "--stream", "--run-config", str(folder / "run.toml"))
        job = processes.start("job", "flwr", "run", *words)
        try:
            job.wait(1800)
        except subprocess.TimeoutExpired:
            raise SystemExit(processes.last_words("job")) from None
    if not told.exists():
        raise SystemExit(processes.last_words("job"))
    found: list[float] = json.loads(told.read_text())
    return found
