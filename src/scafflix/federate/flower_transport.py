"""The clients behind Flower's nodes, and the messages to and from them.

A reply is identified by the message it answers, because the error that Flower creates for a dead
node does not carry the node's id.
"""

from __future__ import annotations

import math
import secrets
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Any

import httpx
from flwr.app import Message, MessageType
from flwr.common.constant import ErrorCode
from flwr.serverapp import Grid
from flwr.supercore.inflatable.inflatable_utils import ObjectPushError

from scafflix.core.errors import ScafflixError
from scafflix.federate.bounds import problem_with_change, problem_with_introduction
from scafflix.federate.counts import LOG
from scafflix.federate.messages import (
    Evaluate,
    Fault,
    Hello,
    Introduction,
    Refusal,
    Reply,
    Request,
    TableSummary,
    Train,
    fault_of,
    is_name,
)
from scafflix.federate.secure.messages import Mask, Share, Unmask
from scafflix.federate.serving import Failure
from scafflix.federate.wire import pack, unpack
from scafflix_flower.patience import patient

POLL = 0.1  # seconds between two checks for a reply, at first
SHARE, SELDOM = 0.1, 1.0  # later this share of the time waited so far, up to so many seconds
PAUSE = 0.01  # seconds; the pause is at least this long per awaited reply
GREETING = 120.0  # seconds a node has to introduce itself
AGAIN = 30.0  # seconds before a node that did not is asked again


class FlowerTransport:
    """Clients by id, behind nodes that may return under another number.

    `expected` holds the clients of the run, once they are known; any other client is refused, and
    so is one whose introduction has changed. `keys` maps clients to the nodes that hold their
    registered keys, if nodes have keys; a node that claims to be a client without its key is
    refused. `needed` is the number of clients to wait for.
    """

    def __init__(
        self,
        grid: Grid,
        patience: float,
        poll: float = POLL,
        keys: Mapping[str, int] | None = None,
    ) -> None:
        self.grid, self.patience, self.poll = grid, patience, poll
        self.keys = keys or {}  # client -> node
        self.nodes: dict[str, int] = {}  # client -> node
        self.silent: dict[int, str] = {}  # node -> why it did not introduce itself
        self.refusing: dict[int, str] = {}  # nodes that refuse to -> their clients, if known
        self.tell: Callable[[str], None] = lambda sentence: None  # the operator
        self.expected: dict[str, Introduction] = {}
        self.told: dict[int, TableSummary] = {}  # of nodes that have tables, until all agree
        self.agreed = ""  # what is done to columns, once it is known
        self.needed = 0
        self.refuse: Callable[[str, Fault], None] = _warn
        self._greeted: dict[int, float] = {}  # node -> when to greet it again

    def greet(self) -> dict[int, Introduction]:
        """Introductions of nodes that have not introduced themselves yet."""
        now, ids = time.monotonic(), set(self.grid.get_node_ids())
        self._greeted = {node: when for node, when in self._greeted.items() if node in ids}
        new = sorted(node for node in ids if self._greeted.get(node, 0.0) <= now)
        found: dict[int, Introduction] = {}
        for node, reply in self._send(
            {node: Hello(False, self.agreed) for node in new}, min(GREETING, self.patience)
        ):
            self._greeted[node] = time.monotonic() + AGAIN
            self.refusing.pop(node, None)
            if isinstance(reply, Introduction):
                wrong = self._problem_with(node, reply)
                if wrong is None:
                    self._greeted[node] = math.inf
                    self.nodes[reply.client] = node
                    found[node] = reply
                    continue
                named = isinstance(reply.client, str) and is_name(reply.client)
                self.refuse(reply.client if named else f"node-{node}", wrong)
            elif isinstance(reply, TableSummary) and not self.agreed and not self.expected:
                wrong = fault_of(reply) or self._problem_with_key(node, reply.client)
                if wrong is None:
                    self._greeted[node] = math.inf
                    self.told[node] = reply
                else:
                    _warn(f"node {node}", wrong)
            else:
                why = reply.reason if isinstance(reply, Failure | Refusal) else str(reply)
                self.silent[node] = why
                if _refuses(reply):
                    self.refusing[node] = self._name_of(node, reply)
                    self._say(node, reply)
                _warn(f"node {node}", Fault("hello", f"it did not introduce itself: {why}"))
        return found

    def _name_of(self, node: int, reply: Any) -> str:
        """The client of a node: by its key, else by its own word; empty if neither is known."""
        known = {number: client for client, number in {**self.keys, **self.nodes}.items()}
        told = getattr(reply, "client", "")
        return known.get(node, told if isinstance(told, str) and is_name(told) else "")

    def _say(self, node: int, reply: Refusal | Failure) -> None:
        """Tell the operator who refuses, and why."""
        name, why = self._name_of(node, reply), str(reply.reason)
        who = f"Client {name}" if name else f"Node {node}"
        self.silent[node] = f"{who} refuses: {why.removeprefix(f'{who}: ')}"
        self.tell(self.silent[node])

    def _problem_with(self, node: int, one: Introduction) -> Fault | None:
        wrong = problem_with_introduction(one)
        if wrong is not None:
            return wrong
        wrong = self._problem_with_key(node, one.client)
        if wrong is not None or not self.expected:
            return wrong
        known = self.expected.get(one.client)
        if known is None:
            return Fault("unknown_client", "it does not take part in this run.")
        return problem_with_change(one, known)

    def _problem_with_key(self, node: int, client: str) -> Fault | None:
        if self.keys and self.keys.get(client) != node:
            return Fault("key", f"node {node} claims to be this client but does not have its key.")
        return None

    def agree(self, text: str) -> None:
        """Greet the nodes with tables again, with what is done to their columns."""
        self.agreed = text
        for node in self.told:
            self._greeted.pop(node, None)
        self.told = {}

    def start_of(self, client: str) -> Introduction:
        """The introduction of one client, with the starting point."""
        requests = {self.nodes[client]: Hello(True, self.agreed)}
        for _, reply in self._send(requests, min(GREETING, self.patience)):
            if isinstance(reply, Introduction) and reply.client == client and reply.start:
                wrong = fault_of(reply, reply.layout)
                if wrong is None:
                    return reply
        raise ScafflixError(
            f"Client {client} did not send a valid starting point; see its log and start again."
        )

    def present(self, clients: Iterable[str]) -> list[str]:
        """The clients whose node is connected now."""
        ids = set(self.grid.get_node_ids())
        return [client for client in clients if self.nodes.get(client) in ids]

    def wait_for(self, clients: Iterable[str], count: int, seconds: float) -> None:
        """Greet new nodes until this many of the clients are connected, or time is up."""
        names, until = list(clients), time.monotonic() + seconds
        self.greet()
        while len(self.present(names)) < count and time.monotonic() < until:
            time.sleep(self.poll)
            self.greet()

    def exchange(self, requests: Mapping[str, Request]) -> Iterable[tuple[str, Reply | Failure]]:
        if not requests:
            return
        of_rounds = Train | Share | Mask | Unmask
        training = any(isinstance(request, of_rounds) for request in requests.values())
        count = min(self.needed, len(requests)) if training else len(requests)
        self.wait_for(requests, count, self.patience if training else min(AGAIN, self.patience))
        present = self.present(requests)
        for client in requests:
            if client not in present:
                yield client, Failure("its node is not connected.")
        clients = {self.nodes[client]: client for client in present}
        asked = {node: requests[client] for node, client in clients.items()}
        for node, reply in self._send(asked, self.patience):
            if _refuses(reply):
                self._say(node, reply)
            yield clients[node], reply

    def _send(self, requests: Mapping[int, Request], patience: float) -> Iterator[tuple[int, Any]]:
        """Push the requests, then check for replies until all have come or time is up."""
        messages = [self._message(node, request) for node, request in requests.items()]
        ids: list[str] = []
        if messages:  # again, if the SuperLink gave up waiting for a piece
            push = patient(ObjectPushError, patience)
            ids = list(push.invoke(self.grid.push_messages, messages))
        sent = list(zip(ids, requests, strict=True))
        waiting = {message: node for message, node in sent if message}
        for message, node in sent:
            if not message:
                yield node, Failure("the message could not be sent.")
        began = time.monotonic()
        until = began + patience
        arrived: SimpleQueue[tuple[str, list[Any]]] = SimpleQueue()
        asked: set[str] = set()  # awaited messages that a thread is checking for
        while waiting and (left := until - time.monotonic()) > 0:
            pause = min(SHARE * (time.monotonic() - began), SELDOM)
            pause = max(self.poll, PAUSE * len(waiting), pause)
            for message in set(waiting) - asked:
                asked.add(message)
                Thread(target=self._pull, args=(message, pause, arrived), daemon=True).start()
            with suppress(Empty):
                message, replies = arrived.get(timeout=left)
                asked.discard(message)
                for reply in replies[:1]:
                    yield waiting.pop(message), reply
        for node in waiting.values():
            yield node, Failure(f"it did not reply within {patience:g} seconds.")

    def _pull(
        self, message: str, pause: float, arrived: SimpleQueue[tuple[str, list[Any]]]
    ) -> None:
        """Check for the reply to one message, in its own thread, so that a node that sends an
        incomplete or malformed reply does not delay the others."""
        replies: list[Any] = []
        try:
            for reply in self.grid.pull_messages([message]):
                own = reply.metadata.reply_to_message_id == message
                replies.append(_content(reply) if own else "an answer to another message")
        except (
            httpx.TransportError
        ) as error:  # our own connection to the SuperLink, not a node's fault
            LOG.warning("the SuperLink is not answering: %s", error)
        except Exception as error:  # malformed bytes can raise anything
            replies = [f"{type(error).__name__}: {error}"]
        if not replies:
            time.sleep(pause)
        arrived.put((message, replies))

    def _message(self, node: int, request: Request) -> Message:
        kind = MessageType.TRAIN
        if isinstance(request, Hello):
            kind = MessageType.QUERY
        elif isinstance(request, Evaluate):
            kind = MessageType.EVALUATE
        return Message(
            pack(request),
            node,
            kind,
            ttl=self.patience + 60,
            # a message is identified by its digest, which only its receiver should be able to know
            group_id=f"{getattr(request, 'round', 0)}-{secrets.token_hex(16)}",
        )


def _warn(sender: str, wrong: Fault) -> None:
    LOG.warning("%s: %s: %s", sender, wrong.kind, wrong.reason)


def _refuses(reply: Any) -> bool:
    return isinstance(reply, Refusal) or (isinstance(reply, Failure) and reply.refuses)


def _content(message: Message) -> Any:
    """The content of a reply: a message, a failure, or something that the core will refuse."""
    if message.has_error():
        reason = (message.error.reason or "no reason given").strip().splitlines()[-1]
        if message.error.code == ErrorCode.CLIENT_APP_RAISED_EXCEPTION:
            return Failure(reason, refuses=True)
        return Failure(f"error {message.error.code}: {reason}")
    try:
        return unpack(message.content)
    except ScafflixError as error:
        return str(error)
