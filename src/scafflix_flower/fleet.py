"""A node's connection to the SuperLink, over Flower's Fleet interface.

Flower's own SuperNode ends when the SuperLink does not know it, as after a restart of the server.
A node here waits for the SuperLink for as long as it takes, and connects anew.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from logging import INFO, WARNING
from pathlib import Path
from threading import Event, Thread
from typing import NamedTuple, cast

import httpx
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import load_ssh_private_key
from flwr.app import Message
from flwr.app.message import remove_content_from_message
from flwr.common.serde import fab_from_proto, message_from_proto, message_to_proto, run_from_proto
from flwr.proto.fab_pb2 import GetFabRequest
from flwr.proto.fleet_pb2 import (
    ActivateNodeRequest,
    DeactivateNodeRequest,
    PullMessagesRequest,
    PushMessagesRequest,
    RegisterNodeFleetRequest,
    UnregisterNodeFleetRequest,
)
from flwr.proto.heartbeat_pb2 import SendNodeHeartbeatRequest
from flwr.proto.message_pb2 import ObjectTree
from flwr.proto.node_pb2 import Node
from flwr.proto.run_pb2 import GetRunRequest
from flwr.supercore import log
from flwr.supercore.fab import Fab
from flwr.supercore.inflatable.inflatable_object import (
    get_all_nested_objects,
    get_object_tree,
    iterate_object_tree,
    no_object_id_recompute,
)
from flwr.supercore.inflatable.inflatable_protobuf_utils import (
    make_confirm_message_received_fn_protobuf,
    make_pull_object_fn_protobuf,
    make_push_object_fn_protobuf,
)
from flwr.supercore.inflatable.inflatable_utils import (
    ObjectPushError,
    inflate_object_from_contents,
    push_objects,
)
from flwr.supercore.interceptors.http.runtime_version import RuntimeVersionHttpInterceptor
from flwr.supercore.primitives.asymmetric import generate_key_pairs, public_key_to_bytes
from flwr.supercore.run import Run
from flwr.supernode.fleet_http_client import FleetHttpClient
from flwr.supernode.node_auth_http_interceptor import NodeAuthHttpInterceptor

from scafflix_flower.patience import patient, pull_pieces

HEARTBEAT = 10.0  # seconds, the shortest that Flower allows; after two without, a node is offline
ADMISSION = 30.0  # seconds to try again: a node killed before may still count as online
GONE = (httpx.TransportError, httpx.HTTPStatusError)


class RefusedError(Exception):
    """The SuperLink does not admit this node."""


class Address(NamedTuple):
    """Where the SuperLink is, and how to be known there."""

    superlink: str
    ca: Path | None = None
    key: Path | None = None

    def keys(self) -> tuple[ec.EllipticCurvePrivateKey, ec.EllipticCurvePublicKey]:
        """The node's own keys, or a pair for this process alone."""
        if self.key is None:
            return generate_key_pairs()
        private = load_ssh_private_key(self.key.read_bytes(), None)
        if not isinstance(private, ec.EllipticCurvePrivateKey):
            raise RefusedError(f"{self.key} is not a key for a node; run: scafflix deploy keys")
        return private, private.public_key()


class Fleet:
    """A connected node."""

    def __init__(self, client: FleetHttpClient, node: int) -> None:
        self._client, self.node = client, Node(node_id=node)

    def receive(self) -> Message | None:
        """The next message, whole, if there is one; the same again until it is confirmed."""
        found = self._client.PullMessages(PullMessagesRequest(node=self.node))
        if not found.messages_list:
            return None
        head, tree = message_from_proto(found.messages_list[0]), found.message_object_trees[0]
        run, number = head.metadata.run_id, head.metadata.message_id
        pull = make_pull_object_fn_protobuf(self._client.PullObject, self.node, run)
        parts = [part.object_id for part in iterate_object_tree(tree)]
        contents = pull_pieces(parts, pull)
        message = cast(Message, inflate_object_from_contents(number, contents))
        message.metadata.__dict__["_message_id"] = number
        return message

    def confirm(self, message: Message) -> None:
        """Say that a message need not be sent again."""
        about, confirm = message.metadata, self._client.ConfirmMessageReceived
        make_confirm_message_received_fn_protobuf(confirm, self.node, about.run_id)(
            about.message_id
        )

    def send(self, reply: Message, seconds: float) -> None:
        """Send a reply, which took so long to make, until all of it has arrived or it expires.

        A piece is not stored if the SuperLink has given up waiting for it, or if the server has the
        whole reply by now. Told of the reply again, the SuperLink says what it still lacks.
        """
        reply.metadata.__dict__["_message_id"] = reply.object_id
        patient(ObjectPushError, reply.metadata.ttl).invoke(self._push, reply, seconds)

    def _push(self, reply: Message, seconds: float) -> None:
        with no_object_id_recompute():
            tree: ObjectTree = get_object_tree(reply)
            told = self._client.PushMessages(
                PushMessagesRequest(
                    node=self.node,
                    messages_list=[message_to_proto(remove_content_from_message(reply))],
                    message_object_trees=[tree],
                    clientapp_runtime_list=[seconds],
                )
            )
            push = make_push_object_fn_protobuf(
                self._client.PushObject, self.node, reply.metadata.run_id, told.session_id
            )
            parts = get_all_nested_objects(reply)
            push_objects(parts, push, object_ids_to_push=set(told.objects_to_push))

    def run(self, number: int) -> tuple[Run, Fab]:
        """A run, and the app that it asks for."""
        asked = GetRunRequest(node=self.node, run_id=number)
        run = run_from_proto(self._client.GetRun(asked).run)
        wanted = GetFabRequest(node=self.node, hash_str=run.fab_hash, run_id=number)
        return run, fab_from_proto(self._client.GetFab(wanted).fab)


@contextmanager
def connected(address: Address, *, before: bool) -> Iterator[Fleet]:
    """A connection, as soon as there is a SuperLink that admits this node.

    A node that was connected before is patient: the SuperLink may just not know its key yet.
    """
    private, public = address.keys()
    version = RuntimeVersionHttpInterceptor(component_name="SuperNode")
    signed = (version, NodeAuthHttpInterceptor(private, public))
    ca = None if address.ca is None else address.ca.read_bytes()
    patience = patient()
    with FleetHttpClient.from_server_address(
        address.superlink, ca is None, ca, signed, retry_invoker=patience
    ) as client:
        unknown = address.key is None
        node = _admitted(client, public_key_to_bytes(public), unknown, before)
        log(INFO, "Connected as node %s", node)
        ended = Event()
        Thread(target=_beat, args=(client, node, ended), daemon=True).start()
        try:
            yield Fleet(client, node)
        finally:
            ended.set()
            patience.max_tries = 1
            with suppress(*GONE):
                client.DeactivateNode(DeactivateNodeRequest(node_id=node))
                if unknown:
                    client.UnregisterNode(UnregisterNodeFleetRequest(node_id=node))


def _admitted(client: FleetHttpClient, key: bytes, unknown: bool, before: bool) -> int:
    """The number of this node, once it is admitted."""
    asked = ActivateNodeRequest(public_key=key, heartbeat_interval=HEARTBEAT)
    until = None
    try:
        while True:
            try:
                with suppress(httpx.HTTPStatusError):  # where nodes have keys, and the second time
                    if unknown:
                        client.RegisterNode(RegisterNodeFleetRequest(public_key=key))
                return int(client.ActivateNode(asked).node_id)
            except httpx.HTTPStatusError as error:
                status, until = error.response.status_code, until or time.monotonic() + ADMISSION
                if time.monotonic() > until and not before:
                    raise RefusedError(
                        f"The SuperLink does not admit this node (status {status}): its key is "
                        "not registered there, or another node is running with it."
                    ) from None
                log(WARNING, "Not admitted (status %s); trying again", status)
                time.sleep(2.0)
    except httpx.TransportError as error:
        raise RefusedError(f"The SuperLink's certificate is not one of --ca: {error}") from None


def _beat(client: FleetHttpClient, node: int, ended: Event) -> None:
    """Tell the SuperLink, in a thread, that this node is there."""
    asked = SendNodeHeartbeatRequest(node=Node(node_id=node), heartbeat_interval=HEARTBEAT)
    while not ended.wait(HEARTBEAT / 2):
        # whoever asks for messages will notice; a client that was closed meanwhile is no error
        with suppress(*GONE, RuntimeError):
            client.SendNodeHeartbeat(asked)
