"""The worker of a node: started with it, handed one message after another, started again when it
ends, and ended with it.

The two talk over a pair of connected sockets without a name, which no other process can reach. The
kernel closes an end with the process that holds it, however that ends: so the worker notices that
the node is gone, and the node that the worker is.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from logging import INFO, WARNING
from pathlib import Path
from socket import socket, socketpair
from types import TracebackType

from flwr.supercore import log

from scafflix_flower.parcel import Parcel, ParcelError, receive, send

WORKER = ("-P", "-m", "scafflix.federate.worker")
ATTEMPTS = 3  # workers that may end with the same message, before it is given up
SOON = 10.0  # seconds; one that ends sooner is started again only for a message


class Worker:
    """The process that holds the learner of a node with these settings."""

    def __init__(self, settings: Path, words: Sequence[str] = WORKER) -> None:
        self.settings, self.words = settings, words
        self._running: tuple[subprocess.Popen[bytes], socket] | None = None
        self._started = 0.0

    def __enter__(self) -> Worker:
        self._line()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._end(tell=False)

    @property
    def pid(self) -> int | None:
        """The number of its process, while there is one."""
        return None if self._running is None else self._running[0].pid

    def keep(self) -> None:
        """Start it again if it has ended, so that it is ready for the next message."""
        if time.monotonic() > self._started + SOON:
            self._line()

    def ask(self, parcel: Parcel) -> Parcel:
        """Its reply. If it ends before, another gets the same message: clients commit only once."""
        for _ in range(ATTEMPTS):
            line = self._line()
            with suppress(OSError):  # it ended
                try:
                    send(line, parcel)
                    reply = receive(line)
                except ParcelError as error:
                    self._end()  # for the rest of what it sent cannot be told from a reply
                    return Parcel(None, error=str(error))
                if reply is not None:
                    return reply
            self._end()
        why = f"The worker ended {ATTEMPTS} times during this message."
        return Parcel(None, error=why, crashed=True)

    def _line(self) -> socket:
        """The node's end of the line to it; it is started unless it runs."""
        if self._running is not None and self._running[0].poll() is not None:
            self._end()
        if self._running is None:
            line, theirs = socketpair()
            with theirs:
                number = theirs.fileno()
                words = [sys.executable, *self.words, str(number), str(self.settings)]
                process = subprocess.Popen(words, stdin=subprocess.DEVNULL, pass_fds=[number])
            self._running, self._started = (process, line), time.monotonic()
            log(INFO, "Started worker %s", process.pid)
        return self._running[1]

    def _end(self, *, tell: bool = True) -> None:
        if self._running is not None:
            process, line = self._running
            self._running = None
            line.close()
            process.kill()
            code = process.wait()
            if tell:
                log(WARNING, "Worker %s ended with code %s", process.pid, code)
