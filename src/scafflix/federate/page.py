"""A page that shows a federation live, with figures for Prometheus and for health checks.

It is served by threads of the command that started the server, which reads what the job writes. The
page changes nothing, and the run does not notice whether it works.

On a loopback address it is open to this machine. On any other it takes TLS and a token, from a file
that only its owner can read: as a password in the browser, or as a bearer token.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import ipaddress
import json
import re
import socket
import ssl
import time
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.resources import files
from pathlib import Path
from threading import Thread
from types import TracebackType
from typing import Any, NamedTuple

from prometheus_client import CONTENT_TYPE_LATEST

from scafflix.core import private
from scafflix.core.errors import ScafflixError
from scafflix.federate.live import read_live
from scafflix.federate.metrics import exposition
from scafflix_flower.secret import new_secret

TOKEN = "page-token"  # the file in the folder of a run
SHORTEST = 16  # characters of a token
SECONDS = 10.0  # that a connection may be silent
Health = Callable[[], str]  # what is wrong with the server; empty if nothing is


class Address(NamedTuple):
    """Where the page is served."""

    host: str
    port: int

    @property
    def near(self) -> bool:
        """Whether only this machine can reach it."""
        with suppress(ValueError):
            return ipaddress.ip_address(self.host).is_loopback
        return self.host == "localhost"

    @staticmethod
    def of(text: str) -> Address:
        """From HOST:PORT.

        >>> Address.of("127.0.0.1:8080"), Address.of("[::1]:80").host
        (Address(host='127.0.0.1', port=8080), '::1')
        """
        host, _, port = text.rpartition(":")
        if not host or not port.isdigit() or int(port) > 65535:
            raise ScafflixError(f"page is {text!r}; give HOST:PORT, such as 127.0.0.1:8080.")
        return Address(host.removeprefix("[").removesuffix("]"), int(port))


def token_in(path: Path) -> str:
    """The token in a file that only its owner can read; a new one if there is none."""
    if not path.exists():
        return new_secret(path)
    token = path.read_text().strip()
    if path.stat().st_mode & ~private.FILE & 0o777:
        raise ScafflixError(f"{path} is open to others; run: chmod 600 {path}")
    if len(token) < SHORTEST or not token.isascii() or not token.isprintable() or " " in token:
        raise ScafflixError(
            f"{path} holds no token: one line of at least {SHORTEST} letters and digits; remove "
            "the file to have one made."
        )
    return token


class Page:
    """Serves what the job in this folder writes, from `start` until the end."""

    def __init__(
        self, folder: Path, address: Address, certificates: Path | None, health: Health
    ) -> None:
        if not address.near and certificates is None:
            raise ScafflixError(
                f"page is {address.host}:{address.port}, which others can reach, so it needs TLS; "
                "give --certificates DIR, or use 127.0.0.1."
            )
        self.folder, self.health = folder, health
        self.ready, self.job, self.nodes = False, "", 0
        self.address, self.certificates = address, certificates
        self.token_file = folder / TOKEN
        self.token = None if address.near else token_in(self.token_file)
        self._server: ThreadingHTTPServer | None = None

    def __enter__(self) -> Page:
        host, port = self.address
        try:
            self._server = _Server((host, port), self)
        except OSError as error:
            raise ScafflixError(
                f"The page cannot be served on {host}:{port}: {error.strerror or error}."
            ) from None
        self.address = Address(host, self._server.server_address[1])
        if self.token is not None:
            assert self.certificates is not None
            context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
            certificate = self.certificates / "server.crt"
            context.load_cert_chain(certificate, certificate.with_name("server.key"))
            # hands are shaken in the connection's own thread, so that nobody waits for another
            self._server.socket = context.wrap_socket(
                self._server.socket, server_side=True, do_handshake_on_connect=False
            )
        Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._server is not None
        self._server.shutdown()
        self._server.server_close()

    def follow(self, job: str, nodes: int) -> None:
        """Show this job, which waits for so many nodes; that of an earlier command is over."""
        self.job, self.nodes = job, nodes

    @property
    def url(self) -> str:
        """The page's own."""
        host, port = self.address
        shown = f"[{host}]" if ":" in host else host
        return f"{'http' if self.token is None else 'https'}://{shown}:{port}/"

    def shown(self) -> dict[str, Any]:
        """What the page shows."""
        found = read_live(self.folder / "server")
        if not self.job or found.get("job") != self.job:
            found = {"phase": "waiting" if self.ready else "starting"}
        found |= {"nodes": self.nodes, "now": time.time()}
        wrong = self.health()
        return found | ({"phase": "stopped", "why": wrong} if wrong else {})

    def admits(self, headers: Any) -> bool:
        """Whether a request may see anything."""
        if self.token is None:  # another site's script must not read it through a name of its own
            name = re.sub(r":\d+$", "", headers.get("Host", "")).strip("[]")
            return Address(name, 0).near
        kind, _, given = headers.get("Authorization", "").partition(" ")
        if kind.lower() == "basic":
            with suppress(ValueError):
                given = base64.b64decode(given).decode("utf-8", "replace").partition(":")[2]
        elif kind.lower() != "bearer":
            given = ""
        return hmac.compare_digest(given.strip().encode(), self.token.encode())

    def answer(self, path: str) -> tuple[int, str, bytes]:
        """Status, type and content."""
        if path == "/healthz":
            wrong = self.health()
            return (503, TEXT, f"{wrong}\n".encode()) if wrong else (200, TEXT, b"ok\n")
        if path == "/readyz":
            able = self.ready and not self.health()
            return (200, TEXT, b"ready\n") if able else (503, TEXT, b"not ready\n")
        if path == "/":
            return 200, "text/html; charset=utf-8", _page()[0]
        if path == "/live.json":
            return 200, "application/json", json.dumps(self.shown()).encode()
        if path == "/metrics":
            return 200, CONTENT_TYPE_LATEST, exposition(self.shown)
        return 404, TEXT, b"There is no such page.\n"


TEXT = "text/plain; charset=utf-8"
OPEN = frozenset({"/healthz", "/readyz"})  # for whoever can reach the port: yes or no


@cache
def _page() -> tuple[bytes, str]:
    """The page, and the policy under which it runs its own script and style and loads nothing."""
    text = (files("scafflix.federate") / "assets" / "live.html").read_text()

    def digest(tag: str) -> str:
        inside = text.partition(f"<{tag}>")[2].partition(f"</{tag}>")[0]
        found = base64.b64encode(hashlib.sha256(inside.encode()).digest())
        return f"'sha256-{found.decode()}'"

    rules = ["default-src 'none'", "connect-src 'self'", "img-src data:"]
    rules += [f"script-src {digest('script')}", f"style-src {digest('style')}"]
    rules += ["base-uri 'none'", "form-action 'none'", "frame-ancestors 'none'"]
    return text.encode(), "; ".join(rules)


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, address: tuple[str, int], page: Page) -> None:
        self.page = page
        self.address_family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        super().__init__(address, _Handler)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A connection that broke is nobody's business."""


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    server_version, sys_version = "scafflix", ""
    timeout = SECONDS

    def do_GET(self) -> None:
        path, page = self.path.partition("?")[0], self.server.page
        if path not in OPEN and not page.admits(self.headers):
            if page.token is None:
                self._send(403, TEXT, b"Ask for this page as localhost or 127.0.0.1.\n")
            else:
                self._send(401, TEXT, b"Give the token that is in the server's folder.\n")
            return
        self._send(*page.answer(path))

    def do_HEAD(self) -> None:
        self.do_GET()

    def _send(self, status: int, kind: str, content: bytes) -> None:
        self.send_response(status)
        if status == 401:
            self.send_header("WWW-Authenticate", 'Basic realm="scafflix", charset="UTF-8"')
        for name, value in (
            ("Content-Type", kind),
            ("Content-Length", str(len(content))),
            ("Content-Security-Policy", _page()[1]),
            ("Cache-Control", "no-store"),
            ("X-Content-Type-Options", "nosniff"),
            ("Referrer-Policy", "no-referrer"),
        ):
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def log_message(self, format: str, *arguments: Any) -> None:
        """Nothing is logged: a request may hold the token."""
