"""What a SuperLink of ours hands out again: everything until it is confirmed."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("flwr", reason="Flower is not installed; pip install 'scafflix[flower]'")

from flwr.app import ConfigRecord, Message, Metadata, RecordDict
from flwr.app.message import make_message
from flwr.common.constant import NOOP_ACCOUNT_NAME, NOOP_FLWR_AID, SUPERLINK_NODE_ID
from flwr.proto.message_pb2 import ConfirmMessageReceivedRequest
from flwr.proto.runtime_pb2 import PullAppMessagesRequest
from flwr.proto.task_pb2 import Task
from flwr.supercore.constant import NOOP_FEDERATION_ID, TaskType
from flwr.supercore.date import now
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects, get_object_tree
from flwr.supercore.object_store.in_memory_object_store import InMemoryObjectStore
from flwr.superlink.federation.noop_federation_manager import NoOpFederationManager

from scafflix_flower.deliveries import Deliveries, confirm_and_forget, pull_and_keep


class Link:
    """A SuperLink's memory with one node and one run."""

    def __init__(self) -> None:
        self.state = Deliveries(NoOpFederationManager(), InMemoryObjectStore())
        self.node = self.state.create_node(NOOP_FLWR_AID, NOOP_ACCOUNT_NAME, b"key", 0)
        self.state.activate_node(self.node, 60.0)
        self.run = self.state.create_run(
            "app", "1", "hash", {}, NOOP_FEDERATION_ID, None, NOOP_FLWR_AID, TaskType.SERVER_APP
        )
        self.task = Task(run_id=self.run)

    def push(self, message: Message) -> list[bool]:
        """Announce a message and send its pieces; of each, whether it is stored."""
        message.metadata.__dict__["_message_id"] = message.object_id
        session = self.state.start_session(self.run)
        _, wanted = self.state.store_message_and_object_tree(
            message, get_object_tree(message), session
        )
        return [
            self.state.store_object(self.run, session, number, part.deflate())
            for number, part in get_all_nested_objects(message).items()
            if number in wanted
        ]

    def at_node(self) -> list[str]:
        found = self.state.get_message_ins(self.node, 1)
        return [message.metadata.message_id for message in found]

    def at_app(self, asked: str) -> list[str]:
        found = pull_and_keep(PullAppMessagesRequest(message_ids=[asked]), self.state, self.task)
        return [message.metadata.message_id for message in found.messages_list]

    def message(self, text: str, source: int, to: int, answers: str = "") -> Message:
        told: Any = (self.run, "", source, to, answers, "", now().timestamp(), 60.0, "train")
        return make_message(Metadata(*told), RecordDict({"told": ConfigRecord({"text": text})}))


def test_a_message_is_handed_out_until_its_node_confirms_it() -> None:
    link = Link()
    asked = link.message("train", SUPERLINK_NODE_ID, link.node)
    assert all(link.push(asked))
    number = asked.metadata.message_id
    assert link.at_node() == link.at_node() == [number]
    link.state.object_store.delete(number)  # as Flower does when the node confirms
    assert link.at_node() == []


def test_a_reply_is_taken_once_and_handed_out_until_the_server_confirms_it() -> None:
    link = Link()
    asked = link.message("train", SUPERLINK_NODE_ID, link.node)
    link.push(asked)
    reply = link.message("trained", link.node, SUPERLINK_NODE_ID, asked.metadata.message_id)
    assert all(link.push(reply))
    assert link.push(reply) == []  # nothing is lacking of it
    another = link.message("otherwise", link.node, SUPERLINK_NODE_ID, asked.metadata.message_id)
    assert link.push(another) == []  # nor wanted of a second answer
    number, answer = asked.metadata.message_id, reply.metadata.message_id
    assert link.at_app(number) == link.at_app(number) == [answer]
    for _ in range(2):  # whose answer may be lost, too
        told = ConfirmMessageReceivedRequest(message_object_id=answer)
        confirm_and_forget(told, link.state, link.task)
    assert link.push(reply) == []
    assert link.state.num_message_ins() == link.state.num_message_res() == 0


def test_a_piece_that_came_before_counts_as_stored() -> None:
    link = Link()
    asked = link.message("train", SUPERLINK_NODE_ID, link.node)
    asked.metadata.__dict__["_message_id"] = asked.object_id
    session = link.state.start_session(link.run)
    link.state.store_message_and_object_tree(asked, get_object_tree(asked), session)
    for number, part in get_all_nested_objects(asked).items():
        content = part.deflate()
        stored = [link.state.store_object(link.run, session, number, content) for _ in range(2)]
        assert stored == [True, True]
    assert not link.state.store_object(link.run, session, "0" * 64, b"what nobody announced")
