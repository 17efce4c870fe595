"""A SuperLink on which a message is delivered once its receiver says so, not when it is fetched.

Flower's own counts a message as delivered when a node asks for it, and forgets it and its reply
when the server's app asks for that. If the answer to such a request is lost on the way, nobody gets
the message, and the server waits in vain. Here it is handed out again until it is confirmed. Who
gets it twice does the same work with the same result, and answers with the same reply.
"""

from __future__ import annotations

from typing import Any

from flwr.app import Message
from flwr.proto.message_pb2 import (
    ConfirmMessageReceivedRequest,
    ConfirmMessageReceivedResponse,
)
from flwr.proto.runtime_pb2 import PullAppMessagesRequest, PullAppMessagesResponse
from flwr.proto.task_pb2 import Task
from flwr.server.superlink.linkstate import linkstate_factory
from flwr.server.superlink.linkstate.in_memory_linkstate import InMemoryLinkState
from flwr.superlink.servicer.runtime import runtime_handlers

from scafflix_flower.own_app import substitute

pull_messages = runtime_handlers.pull_messages
confirm_message_received = runtime_handlers.confirm_message_received


class Deliveries(InMemoryLinkState):
    """The messages of a SuperLink, each kept until its receiver has it."""

    def __init__(self, *others: Any, **more: Any) -> None:
        super().__init__(*others, **more)
        self._answers: dict[str, str] = {}  # reply that was fetched -> message that it answers

    def get_message_ins(
        self, node_id: int, limit: int | None, *, run_id: int | None = None
    ) -> list[Message]:
        """The next messages to a node, first those that it fetched but did not confirm: a node
        that asks for another has no answer to the last, or was started again."""
        with self.lock:
            for number, message in self.message_ins_store.items():
                told = message.metadata
                kept = number in self.object_store and not self._is_finished_run(told.run_id)
                if told.dst_node_id == node_id and kept:
                    told.delivered_at = ""
            return super().get_message_ins(node_id, limit, run_id=run_id)

    def get_message_res(self, message_ids: set[str], run_id: int) -> list[Message]:
        """The replies to these messages, also those that were fetched but not confirmed."""
        with self.lock:
            for number in message_ids & self.message_ins_id_to_message_res_id.keys():
                reply = self.message_res_store[self.message_ins_id_to_message_res_id[number]]
                reply.metadata.delivered_at = ""
            found = super().get_message_res(message_ids, run_id)
            for reply in found:
                self._answers[reply.metadata.message_id] = reply.metadata.reply_to_message_id
            return found

    def store_object(
        self, run_id: int, session_id: str, object_id: str, object_content: bytes
    ) -> bool:
        """Whether this piece of a message is here now, even if it came before: it is known by its
        digest."""
        stored = super().store_object(run_id, session_id, object_id, object_content)
        return stored or bool(self.object_store.get(object_id))

    def confirm(self, reply: str) -> None:
        """Forget a reply that the server's app has, and what it answers."""
        with self.lock:
            self.delete_messages({self._answers.pop(reply)} if reply in self._answers else set())


class Unforgetting:
    """The messages as Flower's function sees them: it deletes what it hands out, but not here."""

    def __init__(self, state: Deliveries) -> None:
        self._state = state

    def __getattr__(self, name: str) -> Any:
        return getattr(self._state, name)

    def delete_messages(self, message_ins_ids: set[str]) -> None:
        """Leave them until they are confirmed."""


def pull_and_keep(
    request: PullAppMessagesRequest, state: Any, task: Task
) -> PullAppMessagesResponse:
    """Replaces Flower's own function."""
    kept: Any = Unforgetting(state)
    return pull_messages(request, kept, task)


def confirm_and_forget(
    request: ConfirmMessageReceivedRequest, state: Any, task: Task
) -> ConfirmMessageReceivedResponse:
    """Replaces Flower's own function."""
    state.confirm(request.message_object_id)
    return confirm_message_received(request, state, task)


def deliver_until_confirmed() -> None:
    """Keep messages until they are confirmed from now on, in this process."""
    substitute(linkstate_factory, "InMemoryLinkState", Deliveries)
    substitute(runtime_handlers, "pull_messages", pull_and_keep)
    substitute(runtime_handlers, "confirm_message_received", confirm_and_forget)
