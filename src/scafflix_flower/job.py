"""The server's job: it submits a run to the SuperLink, and does it.

Flower would start a command to submit the run, a process that waits for tasks, and a process for
the task. This one does it all. It is started with the SuperLink, and imports everything while it
waits for its settings.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import sys
import time
import tomllib
from importlib import import_module
from pathlib import Path
from queue import Queue
from typing import Any

import httpx
from flwr.common.serde import fab_to_proto, user_config_to_proto
from flwr.proto.control_pb2 import StartRunRequest
from flwr.proto.runtime_pb2 import AcquireTaskRequest
from flwr.supercore.constant import TaskType
from flwr.supercore.control.control_http_client import ControlHttpClient
from flwr.supercore.fab import Fab
from flwr.supercore.interceptors import RuntimeVersionHttpInterceptor, SuperExecAuthHttpInterceptor
from flwr.supercore.protobuf.client import ProtobufCall, ProtobufRequestContext
from flwr.supercore.runtime import RuntimeHttpClient
from flwr.superlink.grid import http_grid

from scafflix_flower import own_app
from scafflix_flower.own_app import substitute
from scafflix_flower.patience import patient, patient_app, pull_pieces

APP = "scafflix.federate.flower_server"  # what the app imports
ACQUIRE = "/flwr.proto.Runtime/AcquireTask"
POLL = 0.05  # seconds
TAKE_UP = 60.0  # seconds in which a run that was submitted can be taken up

task = import_module("flwr.superlink.runtime.run_serverapp")  # beside a function of that name


class Operator:
    """Shows the operator's secret."""

    def __init__(self, secret: str) -> None:
        self.header = f"Bearer {secret}"

    def intercept(self, context: ProtobufRequestContext, call_next: ProtobufCall) -> httpx.Response:
        context.request.headers["Authorization"] = self.header
        return call_next(context)


def submit(address: str, secret: str, settings: dict[str, Any]) -> int:
    """Submit a run of the installed app; its number."""
    content = own_app.archive()
    fab = Fab(hashlib.sha256(content).hexdigest(), content, {})
    signed = (RuntimeVersionHttpInterceptor(component_name="job"), Operator(secret))
    with ControlHttpClient.from_server_address(
        address, True, None, signed, retry_invoker=patient()
    ) as client:
        asked = StartRunRequest(
            fab=fab_to_proto(fab), override_config=user_config_to_proto(settings)
        )
        return int(client.StartRun(asked).run_id)


def token_of(run: int, address: str, secret: str) -> str:
    """The token with which a process does the task of a run."""
    signed = (
        RuntimeVersionHttpInterceptor(component_name="SuperExec"),
        SuperExecAuthHttpInterceptor(master_secret=secret.encode(), protected_methods=[ACQUIRE]),
    )
    with RuntimeHttpClient.from_server_address(
        address, True, None, signed, retry_invoker=patient()
    ) as client:
        until = time.monotonic() + TAKE_UP
        while time.monotonic() < until:
            found = client.AcquireTask(
                AcquireTaskRequest(supported_task_types=[TaskType.SERVER_APP])
            )
            if found.token and found.task.run_id == run:
                return str(found.token)
            time.sleep(POLL)
    sys.exit("The SuperLink has no task for the run that was submitted to it.")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--control-port", type=int, required=True)
    parser.add_argument("--secret-file", type=Path, required=True)
    parser.add_argument("--run-config", type=Path, required=True, help="The file to wait for.")
    asked = parser.parse_args()
    substitute(task, "install_from_fab", own_app.check)
    substitute(task, "get_project_dir", lambda *_: own_app.folder())
    substitute(http_grid, "pull_objects", pull_pieces)
    substitute(http_grid, "make_simple_http_retry_invoker", patient_app)
    import_module(APP)
    parent = os.getppid()
    while not asked.run_config.exists():
        if os.getppid() != parent:
            sys.exit("Whoever started this job is gone.")
        time.sleep(POLL)
    address, secret = f"127.0.0.1:{asked.control_port}", asked.secret_file.read_text()
    run = submit(address, secret, tomllib.loads(asked.run_config.read_text()))
    token = token_of(run, address, secret)
    output: Queue[str | None] = Queue()  # stays empty: who follows the run reads this process
    task.run_serverapp(address, output, token, insecure=True)


if __name__ == "__main__":
    main()
