"""A node: it fetches messages for its client and sends the replies; its worker makes them.

Flower's own SuperNode starts a process for every message, which imports everything again. Here
`handover` keeps one process, and this one does nothing but pass messages on. It imports neither
scafflix nor JAX.
"""

from __future__ import annotations

import argparse
import signal
import sys
import time
from collections.abc import Callable
from logging import ERROR, INFO, WARNING
from pathlib import Path
from typing import Any, NoReturn

import httpx
from flwr.app import Error, Message, RecordDict
from flwr.common.config import get_fused_config_from_fab
from flwr.common.constant import ErrorCode
from flwr.supercore import log

from scafflix_flower import own_app
from scafflix_flower.fleet import Address, Fleet, RefusedError, connected
from scafflix_flower.handover import Worker
from scafflix_flower.parcel import Parcel
from scafflix_flower.records import parcel_of, record_of

SHORTEST, SHARE, SELDOM = 0.1, 0.1, 3.0  # seconds, a share of them, seconds
NOT_RUNNING = 403  # the HTTP status for a run that has ended
RUNS = 100  # whose settings are remembered

Ask = Callable[[Parcel], Parcel]


def pause_after(seconds: float) -> float:
    """How long to wait before asking for messages again, so long after the last.

    A tenth of that time: whoever waits, waits a tenth longer at most. Never more than 3 seconds,
    which is what Flower's own SuperNode waits.

    >>> pause_after(0.0), pause_after(10.0), pause_after(3600.0)
    (0.1, 1.0, 3.0)
    """
    return min(max(SHORTEST, SHARE * seconds), SELDOM)


class Post:
    """Passes messages on to the worker, and its replies back."""

    def __init__(self, fleet: Fleet, ask: Ask) -> None:
        self.fleet, self.ask = fleet, ask
        self._settings: dict[int, str] = {}  # of the runs

    def turn(self) -> bool:
        """Fetch a message, if there is one, and send the reply; whether that was done."""
        try:
            message = self.fleet.receive()
            if message is None:
                return False
            began, about = time.monotonic(), message.metadata
            log(INFO, "Message of run %s: %s", about.run_id, about.message_type)
            reply = self.reply_to(message)
            seconds = time.monotonic() - began
            self.fleet.send(reply, seconds)
            self.fleet.confirm(message)  # not before: until then it is sent again
            log(INFO, "Replied after %.2f seconds", seconds)
            return True
        except httpx.HTTPStatusError as error:
            if error.response.status_code != NOT_RUNNING:
                raise
            log(WARNING, "The run of this message has ended")
        except Exception as error:  # malformed bytes can raise anything
            log(ERROR, "A message was not passed on: %s: %s", type(error).__name__, error)
        return False

    def reply_to(self, message: Message) -> Message:
        """The worker's reply, or the reason why there is none."""
        try:
            parcel = parcel_of(message.content, self._settings_of(message.metadata.run_id))
            reply = self.ask(parcel)
        except own_app.OtherAppError as error:
            reply = Parcel(None, error=str(error))
        if reply.error:
            log(ERROR, "%s", reply.error)
            crashed, refuses = ErrorCode.CLIENT_APP_CRASHED, ErrorCode.CLIENT_APP_RAISED_EXCEPTION
            code = crashed if reply.crashed else refuses
            return _reply(Error(code=code, reason=reply.error), message)
        return _reply(record_of(reply), message)

    def _settings_of(self, number: int) -> str:
        """The settings of a run of our own app; any other app is refused."""
        if number not in self._settings:
            run, fab = self.fleet.run(number)
            own_app.check(fab.content)
            if len(self._settings) >= RUNS:
                self._settings.clear()
            asked = get_fused_config_from_fab(fab.content, run)
            self._settings[number] = str(asked.get("settings", ""))
        return self._settings[number]


def _reply(content: RecordDict | Error, message: Message) -> Message:
    """A reply that depends on nothing but its content and the message: as the SuperLink knows a
    reply by its digest, it takes a repeated one for what it is."""
    made = Message(content, reply_to=message)
    asked = message.metadata
    made.metadata.__dict__.update(_created_at=asked.created_at, _ttl=asked.ttl)
    return made


def serve(address: Address, worker: Worker) -> NoReturn:
    """Pass messages on, over one connection after another."""
    before = False
    while True:
        try:
            with connected(address, before=before) as fleet:
                before, post, last = True, Post(fleet, worker.ask), time.monotonic()
                while True:
                    if post.turn():
                        last = time.monotonic()
                    else:
                        worker.keep()
                        time.sleep(pause_after(time.monotonic() - last))
        except httpx.HTTPStatusError as error:
            log(WARNING, "The SuperLink does not know this node (%s)", error.response.status_code)
            time.sleep(1.0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--superlink", required=True)
    parser.add_argument("--node-config", type=Path, required=True)
    parser.add_argument("--root-certificates", type=Path, help="For TLS.")
    parser.add_argument("--key", type=Path, help="The node's private key.")
    asked = parser.parse_args()

    def stop(*_: Any) -> NoReturn:
        raise SystemExit(0)

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, stop)
    address = Address(asked.superlink, asked.root_certificates, asked.key)
    try:
        with Worker(asked.node_config) as worker:
            serve(address, worker)
    except RefusedError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
