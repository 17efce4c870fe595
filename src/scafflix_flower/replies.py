"""What a node may push to the SuperLink: its own replies, in requests of limited size.

Flower's signature says which node a request comes from, but Flower accepts any message in it, even
one to another node in the name of the server, which that node would obey.
"""

from __future__ import annotations

from fastapi import HTTPException
from flwr.proto.fleet_pb2 import PushMessagesRequest, PushMessagesResponse
from flwr.server.superlink.linkstate import LinkState
from flwr.superlink.servicer.fleet import fleet_handlers
from starlette.datastructures import Headers

from scafflix_flower.own_app import substitute

LARGEST = 16 * 2**20  # largest request in bytes; Flower splits arrays into pieces of 5 MiB

push_messages = fleet_handlers.push_messages


def push_own_replies(request: PushMessagesRequest, state: LinkState) -> PushMessagesResponse:
    """Replaces Flower's own function."""
    for message in request.messages_list:
        told = message.metadata
        if told.src_node_id != request.node.node_id or not told.reply_to_message_id:
            raise HTTPException(400, "A node may send only its own replies.")
    return push_messages(request=request, state=state)


def take_only_own_replies() -> None:
    """Accept only a node's own replies from now on, in this process."""
    substitute(fleet_handlers, "push_messages", push_own_replies)


def refusal_of(headers: Headers) -> int | None:
    """The HTTP status for a request that is too large or does not state its size."""
    length = headers.get("content-length", "")
    if not length.isdecimal():
        return 411
    return 413 if int(length) > LARGEST else None
