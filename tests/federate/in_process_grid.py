"""Flower's Grid without Flower's processes: messages go through protobuf to the ClientApp."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from flwr.app import Context, Error, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.common.serde import recorddict_from_proto, recorddict_to_proto
from flwr.serverapp import Grid
from flwr.supercore.task_identity import TaskIdentity

TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = 1, 1, 1
SERVER = 1


def over_the_wire(content: RecordDict) -> RecordDict:
    """What arrives of a record."""
    return recorddict_from_proto(recorddict_to_proto(content))


class InProcessGrid(Grid):
    """Nodes by number, each with its own settings and one common app."""

    def __init__(
        self, app: ClientApp, nodes: Mapping[int, dict[str, Any]], run_config: dict[str, Any]
    ) -> None:
        self.app, self.nodes, self.run_config = app, dict(nodes), run_config
        self.records: list[RecordDict] = []  # all that was on the wire
        self.dead: set[int] = set()
        self._replies: dict[str, Message] = {}
        self._sent = 0

    def set_run(self, run: Any) -> None: ...

    @property
    def run(self) -> Any:
        return None

    def create_message(self, *args: Any, **options: Any) -> Message:
        raise NotImplementedError

    def send_and_receive(self, *args: Any, **options: Any) -> Iterable[Message]:
        raise NotImplementedError

    def get_node_ids(self) -> Iterable[int]:
        return list(self.nodes)

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        return [self._push(message) for message in messages]

    def _push(self, message: Message) -> str:
        self._sent += 1
        number = f"message-{self._sent}"
        message.metadata.__dict__["_message_id"] = number
        node = message.metadata.dst_node_id
        self.records.append(message.content)
        message.content = over_the_wire(message.content)
        settings = dict(self.nodes[node])
        context = Context(1, node, settings, RecordDict(), dict(self.run_config))
        if node in self.dead:
            reply = Message(Error(5, "node unavailable"), reply_to=message)
            reply.metadata.__dict__["_src_node_id"] = SERVER  # as Flower does
        else:
            reply = self.app(message, context)
            self.records.append(reply.content)
            reply.content = over_the_wire(reply.content)
        self._replies[number] = reply
        return number

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        return [self._replies.pop(key) for key in list(message_ids) if key in self._replies]
