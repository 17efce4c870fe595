"""The process that holds a node's learner: its data, x_i* and compiled programs.

The node's process starts it, hands it one message after another over a socket that it inherits,
and starts another when it ends. What must last is on the disk before a reply is sent, so it may be
killed at any moment. It ends as soon as the node is gone, also in the middle of a message.
"""

from __future__ import annotations

import os
import signal
import sys
import tomllib
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from queue import SimpleQueue
from socket import socket
from threading import Thread
from typing import Any

from scafflix.core.errors import ScafflixError, one_line
from scafflix.core.machine import use_all_cores
from scafflix.federate.client import ClientCore
from scafflix.federate.configuration import config_from
from scafflix.federate.messages import Request, refusal_of
from scafflix.federate.node import client_of
from scafflix.federate.parcels import packed, unpacked
from scafflix.federate.table_client import TableClient
from scafflix_flower.parcel import Parcel, receive, send

Core = ClientCore | TableClient
Own = Mapping[str, Any]  # the node's own settings
Mark = tuple[str, tuple[int, ...]]  # of what a learner is made of


class Desk:
    """One client, for as long as its settings and its file stay as they are."""

    def __init__(self, own: Own) -> None:
        self.own = own
        self._made: tuple[Mark, Core] | None = None

    def reply(self, asked: Parcel) -> Parcel:
        """The reply to any parcel; a repeated one has no further effect."""
        try:
            return answer(self.core(asked.settings), asked)
        except ScafflixError as error:
            name = str(self.own.get("client", ""))
            return packed(refusal_of(_request(asked), name, "error", one_line(str(error))))
        except Exception as error:  # of a user's learner, say
            traceback.print_exc()
            return Parcel(None, error=one_line(f"{type(error).__name__}: {error}"))

    def core(self, settings: str) -> Core:
        """The client under the settings of a run."""
        mark = settings, _mark_of(Path(str(self.own.get("data", ""))))
        if self._made is None or self._made[0] != mark:
            self._made = None  # its memory, before the next takes as much
            self._made = mark, client_of(config_from(settings), self.own)
        return self._made[1]


def answer(core: Core, asked: Parcel) -> Parcel:
    """What a client says to a parcel, which may be none of ours."""
    try:
        request = unpacked(asked)
    except ScafflixError as error:
        return packed(refusal_of(None, core.name, "type", str(error)))
    return packed(core.handle(request))


def _request(asked: Parcel) -> Request | None:
    """What is asked for, if that can be read."""
    try:
        found: Request = unpacked(asked)
        return found
    except ScafflixError:
        return None


def _mark_of(file: Path) -> tuple[int, ...]:
    try:
        found = file.stat()
    except OSError:
        return ()
    return found.st_ino, found.st_size, found.st_mtime_ns


def serve(line: socket, reply: Callable[[Parcel], Parcel]) -> None:
    """Answer parcels until the other end is gone."""
    asked: SimpleQueue[Parcel] = SimpleQueue()

    def listen() -> None:
        """In a thread, to notice at any time that the node is gone: then nobody needs a reply."""
        try:
            while (parcel := receive(line)) is not None:
                asked.put(parcel)
        finally:
            os._exit(0)

    Thread(target=listen, daemon=True).start()
    while True:
        send(line, reply(asked.get()))


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the node decides when to stop
    use_all_cores()
    with socket(fileno=int(sys.argv[1])) as line:
        serve(line, Desk(tomllib.loads(Path(sys.argv[2]).read_text())).reply)


if __name__ == "__main__":
    main()
