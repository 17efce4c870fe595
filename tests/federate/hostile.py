"""A node with a registered key that sends what it likes, over the wire that Flower's nodes use."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from threading import Event, Thread
from typing import Any, cast

from cryptography.hazmat.primitives.serialization import load_ssh_private_key
from flwr.app import Message
from flwr.supercore.inflatable.inflatable_object import (
    get_all_nested_objects,
    get_object_tree,
    iterate_object_tree,
)
from flwr.supercore.inflatable.inflatable_utils import inflate_object_from_contents, pull_objects
from flwr.supernode.fleet_http_connection import http_request_response

Answer = Callable[["HostileNode", Message], None]


class HostileNode(Thread):
    """Hands every message to `answer`, which sends what it likes."""

    def __init__(self, address: str, ca: Path, key: Path, answer: Answer) -> None:
        super().__init__(daemon=True)
        private = cast(Any, load_ssh_private_key(key.read_bytes(), None))
        self._where = (address, False, ca.read_bytes(), (private, private.public_key()))
        self.answer = answer
        self.ended = Event()
        self.failed: BaseException | None = None

    def run(self) -> None:
        try:
            with http_request_response(*self._where) as connection:
                self.node, self._receive, self._send, _, _, *objects = connection
                self._pull, self._push, self._confirm = objects
                while not self.ended.is_set():
                    self._turn()
                    time.sleep(0.2)
        except SystemExit as error:
            self.failed = error

    def _turn(self) -> None:
        try:
            message = self.receive()
            if message is not None:
                self.answer(self, message)
        except Exception as error:  # which Flower would only log
            self.failed = self.failed or error

    def receive(self) -> Message | None:
        """A whole message, if there is one."""
        found = self._receive()
        if found is None:
            return None
        head, tree = found
        run, number = head.metadata.run_id, head.metadata.message_id
        parts = [one.object_id for one in iterate_object_tree(tree)]
        contents = pull_objects(parts, pull_object_fn=lambda part: self._pull(run, part))
        self._confirm(run, number)
        message = cast(Message, inflate_object_from_contents(number, contents))
        message.metadata.__dict__["_message_id"] = number
        return message

    def send(self, message: Message, parts: bool = True, **metadata: Any) -> bool:
        """Whether it was taken; with other metadata than Flower gives it."""
        for name, value in metadata.items():
            message.metadata.__dict__[f"_{name}"] = value
        message.metadata.__dict__["_message_id"] = message.object_id
        wanted, session = self._send(message, get_object_tree(message), 0.0)
        if parts:
            for number, part in get_all_nested_objects(message).items():
                if number in wanted:
                    self._push(message.metadata.run_id, session, number, part.deflate())
        return bool(wanted)
