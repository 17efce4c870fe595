"""Flower's SuperExec, which starts tasks, limited to one app: the one of this package."""

from __future__ import annotations

import argparse
import os
import socket
import subprocess
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from flwr.supercore.constant import TaskType
from flwr.supercore.superexec import run_superexec as superexec
from flwr.supercore.superexec.executor import LaunchResult
from flwr.supercore.superexec.executor.subprocess_executor import SubprocessExecutor
from flwr.supercore.superexec.executor.types import ExecutionSpec

from scafflix_flower import command, own_app

# an agent that a server requests from a node is accepted here, then refused like any other app
TASKS = {
    "server": {TaskType.SERVER_APP},
    "client": {TaskType.CLIENT_APP, TaskType.AGENT_APP},
}


class OwnAppExecutor(SubprocessExecutor):
    """Starts our own process, whatever the task."""

    def __init__(self, side: str) -> None:
        self.side = side
        self.children: list[subprocess.Popen[str]] = []

    def get_eligible_capacity(
        self, supported_task_types: set[TaskType], **_: Any
    ) -> tuple[set[TaskType], set[str]]:
        return TASKS[self.side] & supported_task_types, set()

    def launch(self, spec: ExecutionSpec) -> LaunchResult:
        out = subprocess.DEVNULL if spec.suppress_output else None
        words = command("own_app", self.side, spec.runtime_api_address, str(os.getpid()))
        child = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=out, stderr=out, text=True)
        assert child.stdin is not None
        with suppress(BrokenPipeError), child.stdin as line:
            line.write(
                spec.token + "\n"
            )  # not an argument: every user of the machine can see those
        self.children.append(child)
        return LaunchResult.accepted()

    def reconcile(self) -> None:
        self.children = [child for child in self.children if child.poll() is None]


def start(side: str, port: int, secret_file: Path) -> None:
    """Start an executor for the Runtime interface on this port; it ends with this process."""
    words = command("executor", side, str(port), str(secret_file), str(os.getpid()))
    subprocess.Popen(words, stdin=subprocess.DEVNULL)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("side", choices=TASKS)
    parser.add_argument("port", type=int)
    parser.add_argument("secret_file", type=Path)
    parser.add_argument("parent", type=int)
    asked = parser.parse_args()
    own_app.substitute(superexec, "get_executor", lambda *_, **__: OwnAppExecutor(asked.side))
    _wait_for(asked.port, asked.parent)
    superexec.run_superexec(
        runtime_api_address=f"127.0.0.1:{asked.port}",
        insecure=True,  # on loopback
        superexec_auth_secret=asked.secret_file.read_bytes(),
        parent_pid=asked.parent,
        runtime_dependency_install=False,
    )


def _wait_for(port: int, parent: int) -> None:
    """Wait until a process listens on the port, or the parent is gone."""
    while os.getppid() == parent:
        with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1.0):
            return
        time.sleep(0.1)


if __name__ == "__main__":
    main()
