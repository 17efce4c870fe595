"""Child processes that do not outlive their parent's work."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import IO

from scafflix.errors import ScafflixError

GRACE = 10.0  # seconds between asking a process to stop and killing it

OFFLINE = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
    "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.05",
}


def environment(home: Path, cache: Path) -> dict[str, str]:
    """For Flower's commands: no network but the given addresses, no files but in these folders.

    Each message is handled in a process of its own, which finds programs compiled before it.
    """
    here = str(Path(sys.executable).parent)
    return {
        **os.environ,
        **OFFLINE,
        "FLWR_HOME": str(home),
        "PATH": os.pathsep.join([here, os.environ.get("PATH", "")]),
        "JAX_COMPILATION_CACHE_DIR": str(cache),
        "SCAFFLIX_CACHE": str(cache),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
        "PYTHONUNBUFFERED": "1",
    }


class Processes:
    """Everything that was started is stopped at the end, with all that it started itself."""

    def __init__(self, logs: Path, variables: dict[str, str]) -> None:
        self.logs, self.variables = logs, variables
        self.running: dict[str, subprocess.Popen[str]] = {}
        self._files: list[IO[str]] = []

    def __enter__(self) -> Processes:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def start(self, name: str, *words: str, piped: bool = False) -> subprocess.Popen[str]:
        """A command of this environment, with its output in a log file or in a pipe."""
        program = Path(sys.executable).parent / words[0]
        if not program.exists():
            raise ScafflixError(
                f"{words[0]} is not installed; install Flower with pip install 'scafflix[flower]'."
            )
        out: IO[str] | int = subprocess.PIPE
        if not piped:
            out = (self.logs / f"{name}.log").open("a")
            self._files.append(out)
        process = subprocess.Popen(
            [str(program), *words[1:]],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            env=self.variables,
            text=True,
            start_new_session=True,  # a Ctrl-C is ours to pass on, and whole groups are stopped
        )
        self.running[name] = process
        return process

    def kill(self, name: str) -> None:
        """At once, without a last word."""
        process = self.running.pop(name)
        offspring = _offspring([process.pid])
        _signal(process, signal.SIGKILL)
        process.wait()
        _kill(offspring)

    def check(self) -> None:
        """Refuse to go on when a process has ended that should not have."""
        for name, process in self.running.items():
            if process.poll() is not None:
                raise ScafflixError(
                    f"{name} ended with code {process.returncode}: {self.last_words(name)}"
                )

    def last_words(self, name: str) -> str:
        """The end of a log, in one line."""
        path = self.logs / f"{name}.log"
        lines = path.read_text(errors="replace").split("\n") if path.exists() else []
        told = [line.strip() for line in lines if line.strip()]
        return f"{' | '.join(told[-3:])[-500:]} (see {path})"

    def stop(self) -> None:
        """Ask all, newest first; kill those who stay."""
        left = list(self.running.values())[::-1]
        # Flower puts some of its own into sessions of their own, beyond the reach of a group
        offspring = _offspring([process.pid for process in left])
        for process in left:
            _signal(process, signal.SIGTERM)
        until = time.monotonic() + GRACE
        for process in left:
            with suppress(subprocess.TimeoutExpired):
                process.wait(max(0.0, until - time.monotonic()))
            _signal(process, signal.SIGKILL)  # also what it left behind in its group
            process.wait()
            if process.stdout is not None:
                process.stdout.close()
        _kill(offspring)
        self.running.clear()
        for file in self._files:
            file.close()
        self._files.clear()


def _signal(process: subprocess.Popen[str], number: signal.Signals) -> None:
    """To a process and its group."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, number)


def _offspring(parents: list[int]) -> list[int]:
    """The children of these processes and their children, as long as they can be told."""
    listed = subprocess.run(
        ["ps", "-e", "-o", "pid=,ppid="], capture_output=True, text=True, check=False
    ).stdout
    children: dict[int, list[int]] = {}
    for line in listed.splitlines():
        pid, parent = map(int, line.split())
        children.setdefault(parent, []).append(pid)
    found: list[int] = []
    ahead = list(parents)
    while ahead:
        young = children.get(ahead.pop(), [])
        found += young
        ahead += young
    return found


def _kill(pids: list[int]) -> None:
    for pid in pids:
        with suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)


def free_port() -> int:
    """A port of the loopback that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_for_port(
    port: int, processes: Processes, host: str = "127.0.0.1", seconds: float = 60.0
) -> None:
    """Until somebody listens."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        processes.check()
        with suppress(OSError), socket.create_connection((host, port), timeout=1.0):
            return
        time.sleep(0.1)
    raise ScafflixError(f"Nobody listens on port {port} after {seconds:g} seconds.")
