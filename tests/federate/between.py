"""A TCP port in front of another: it counts the bytes that pass, and may do something to them, or
lose what is asked or answered in plain HTTP."""

from __future__ import annotations

import socket
import socketserver
from collections.abc import Callable
from contextlib import suppress
from threading import Lock, Thread
from types import TracebackType

LARGEST = 1 << 16  # bytes that are passed on at once

REQUEST, ANSWER = "request", "answer"  # what may be lost of an exchange

Change = Callable[[bytes], bytes]  # nothing at all ends the connection
Lose = Callable[[str], str]  # from the path of a request: what is lost, with the connection


class Between(socketserver.ThreadingTCPServer):
    """In front of a port on this machine."""

    daemon_threads = allow_reuse_address = True

    def __init__(
        self, behind: int, change: Change = lambda data: data, lose: Lose = lambda path: ""
    ) -> None:
        super().__init__(("127.0.0.1", 0), Passing)
        self.behind, self.change, self.lose = behind, change, lose
        self.up = self.down = self.connections = 0
        self.lock = Lock()
        self._thread = Thread(target=self.serve_forever, kwargs={"poll_interval": 0.1})

    @property
    def port(self) -> int:
        """To connect to."""
        return int(self.server_address[1])

    def __enter__(self) -> Between:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.shutdown()
        self.server_close()
        self._thread.join()


class Passing(socketserver.BaseRequestHandler):
    """One connection."""

    server: Between
    lost = ""  # of the exchange that is going on

    def handle(self) -> None:
        self.server.connections += 1
        with suppress(OSError), socket.create_connection(("127.0.0.1", self.server.behind)) as to:
            back = Thread(target=self.passed, args=(to, self.request, False), daemon=True)
            back.start()
            self.passed(self.request, to, True)
            back.join()

    def passed(self, source: socket.socket, to: socket.socket, up: bool) -> None:
        with suppress(OSError):
            while data := source.recv(LARGEST):
                with self.server.lock:
                    self.server.up += len(data) if up else 0
                    self.server.down += 0 if up else len(data)
                if up and data.startswith(b"POST "):
                    self.lost = self.server.lose(data.split(maxsplit=2)[1].decode())
                data = self.server.change(data)
                if not data or self.lost == (REQUEST if up else ANSWER):
                    break
                to.sendall(data)
        for one in (source, to):
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
