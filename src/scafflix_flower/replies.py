"""What a node may push to the SuperLink: its own replies, in requests of a bounded size.

Flower's signature says which node a request is from, but Flower takes whatever message the request
holds: also one in the name of the server to another node, which would do what it says.
"""

from __future__ import annotations

from fastapi import HTTPException
from flwr.proto.fleet_pb2 import PushMessagesRequest, PushMessagesResponse
from flwr.server.superlink.linkstate import LinkState
from flwr.superlink.servicer.fleet import fleet_handlers
from starlette.datastructures import Headers

from scafflix_flower.own_app import substitute

LARGEST = 16 * 2**20  # bytes of a request; Flower cuts arrays into pieces of 5 MiB

push_messages = fleet_handlers.push_messages


def push_own_replies(request: PushMessagesRequest, state: LinkState) -> PushMessagesResponse:
    """In the place of Flower's own."""
    for message in request.messages_list:
        told = message.metadata
        if told.src_node_id != request.node.node_id or not told.reply_to_message_id:
            raise HTTPException(400, "A node sends its own replies and nothing else.")
    return push_messages(request=request, state=state)


def take_only_own_replies() -> None:
    """From now on, in this process."""
    substitute(fleet_handlers, "push_messages", push_own_replies)


def refusal_of(headers: Headers) -> int | None:
    """The status for a request that is too large or does not say how large it is."""
    length = headers.get("content-length", "")
    if not length.isdecimal():
        return 411
    return 413 if int(length) > LARGEST else None
