"""Child processes that do not outlive their parent."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import IO, NoReturn

import psutil

from scafflix.core import durable
from scafflix.core.errors import ScafflixError
from scafflix.federate import watcher

GRACE = 10.0  # seconds between asking a process to stop and killing it
LOGS, NOTE = "logs", "processes"  # the folder of logs, and the list of running processes in it

# A child waits for a line before it runs the program. If its parent dies before the watcher
# knows about the child, the line never comes, and the child ends.
WAITING = 'read -r go && exec "$0" "$@" </dev/null'

OFFLINE = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
}


def environment(home: Path, cache: Path) -> dict[str, str]:
    """Variables for Flower's commands: no network beyond the given addresses, and no files outside
    these folders.

    A process that is started again reuses the programs compiled earlier.
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


@contextmanager
def alone(folder: Path) -> Iterator[int]:
    """Reserve the folder for this command, and end what a dead command left running in it.

    Yields the file descriptor that locks the folder.
    """
    with durable.locked(durable.new_folder(folder), patience=0.0) as held:
        watcher.end(watcher.read_note(folder / LOGS / NOTE))
        yield held


class Watch:
    """The watcher of this process: when this process ends, the watcher ends all it was told of."""

    def __init__(self, logs: Path) -> None:
        words = [sys.executable, "-P", watcher.__file__, str(logs / NOTE)]
        self.process = subprocess.Popen(
            words,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            text=True,
            start_new_session=True,  # so that signals to our group do not reach it
        )

    @property
    def pipe(self) -> IO[str]:
        """The pipe to the watcher; nothing is ended while it is open."""
        assert self.process.stdin is not None
        return self.process.stdin

    def add(self, pid: int) -> None:
        """Add a process that must end with this one."""
        try:
            self.pipe.write(watcher.line_of(psutil.Process(pid)) + "\n")
            self.pipe.flush()
        except BrokenPipeError:
            raise ScafflixError(
                "The process that watches the others was killed; run the same command again."
            ) from None

    def end(self) -> None:
        """Kill whatever is left of the processes that were added."""
        with suppress(BrokenPipeError):
            self.pipe.close()
        self.process.wait()


class Processes:
    """Processes that are stopped at the end, together with their own children.

    If this process is killed, a watcher stops them.
    """

    def __init__(self, logs: Path, variables: dict[str, str]) -> None:
        self.logs, self.variables = logs, variables
        self._watch: Watch | None = None
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

    def start(self, name: str, *words: str) -> subprocess.Popen[str]:
        """Start a command of this environment, with its output in a log file."""
        program = _program(words[0])
        out = (self.logs / f"{name}.log").open("a")
        self._files.append(out)
        if self._watch is None:
            self._watch = Watch(self.logs)
        process = subprocess.Popen(
            ["/bin/sh", "-c", WAITING, program, *words[1:]],
            stdin=subprocess.PIPE,
            stdout=out,
            stderr=subprocess.STDOUT,
            env=self.variables,
            text=True,
            start_new_session=True,  # we handle Ctrl-C ourselves, and stop whole groups
        )
        self.running[name] = process
        self._watch.add(process.pid)
        assert process.stdin is not None
        with process.stdin as waiting:
            waiting.write("go\n")
        process.stdin = None  # nothing more is sent to it
        return process

    def kill(self, name: str) -> None:
        """Kill a process at once, without asking it to stop."""
        process = self.running.pop(name)
        with suppress(psutil.NoSuchProcess):
            if process.poll() is None:  # else its number may be another's by now
                watcher.end([psutil.Process(process.pid)])
        process.wait()

    def check(self) -> None:
        """Raise an error if a process has ended that should be running."""
        for name, process in self.running.items():
            if process.poll() is not None:
                raise ScafflixError(
                    f"{name} ended with code {process.returncode}: {self.last_words(name)}"
                )

    def last_words(self, name: str) -> str:
        """The end of a log, as one line."""
        path = self.logs / f"{name}.log"
        lines = path.read_text(errors="replace").split("\n") if path.exists() else []
        told = [line.strip() for line in lines if line.strip()]
        return f"{' | '.join(told[-3:])[-500:]} (see {path})"

    def stop(self) -> None:
        """Ask all processes to stop, newest first; kill those that do not."""
        left = list(self.running.values())[::-1]
        for process in left:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGTERM)
        until = time.monotonic() + GRACE
        for process in left:
            with suppress(subprocess.TimeoutExpired):
                process.wait(max(0.0, until - time.monotonic()))
        if self._watch is not None:
            self._watch.end()
            self._watch = None
        for process in left:
            process.kill()  # in case the watcher is gone
            process.wait()
            if process.stdin is not None:
                process.stdin.close()
        self.running.clear()
        for file in self._files:
            file.close()
        self._files.clear()


def become(words: list[str], variables: dict[str, str], folder: Path, held: int) -> NoReturn:
    """Replace this process by a program of this environment, which keeps the folder locked."""
    watch = Watch(durable.new_folder(folder / LOGS))
    watch.add(os.getpid())
    for kept in (held, watch.pipe.fileno()):
        os.set_inheritable(kept, True)
    program = _program(words[0])
    os.execve(program, [program, *words[1:]], variables)


def _program(name: str) -> str:
    program = Path(sys.executable).parent / name
    if not program.exists():
        raise ScafflixError(f"{name} is not installed; run: pip install 'scafflix[flower]'")
    return str(program)


def free_port() -> int:
    """A free loopback port."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_for_port(
    port: int, processes: Processes, host: str = "127.0.0.1", seconds: float = 60.0
) -> None:
    """Wait until a process listens on the port."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        processes.check()
        with suppress(OSError), socket.create_connection((host, port), timeout=1.0):
            return
        time.sleep(0.1)
    raise ScafflixError(
        f"No process listens on port {port} after {seconds:g} seconds; see {processes.logs}."
    )
