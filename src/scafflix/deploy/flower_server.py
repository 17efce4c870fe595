"""The server on Flower: finds out which node is which client, and carries the core's messages.

Replies are told apart by the message that they answer: the error that Flower makes up for a node
that died does not carry the node's own id.
"""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from flwr.app import Context, Message, MessageType
from flwr.serverapp import Grid, ServerApp

from scafflix import gradients
from scafflix.config import plain
from scafflix.deploy import durable
from scafflix.deploy.configuration import DeployConfig, config_from, names_from
from scafflix.deploy.link import FINISHED
from scafflix.deploy.messages import (
    Evaluate,
    Hello,
    Introduction,
    Problem,
    Refusal,
    Reply,
    Request,
    Train,
    problem_with,
)
from scafflix.deploy.planning import advice
from scafflix.deploy.recording import record
from scafflix.deploy.server import LOG, Roster, ServerCore, Settings, new_roster
from scafflix.deploy.serving import Failure, Progress, serve
from scafflix.deploy.wire import pack, unpack
from scafflix.errors import ScafflixError
from scafflix.experiment import make_method
from scafflix.methods import PACED, Method
from scafflix.record import Record

POLL = 0.2  # seconds between two looks for replies
GREETING = 120.0  # seconds that a node has to introduce itself
AGAIN = 30.0  # seconds after which one that did not is asked again


class FlowerTransport:
    """Clients by their ids, behind nodes that may come back under another number.

    `expected` are the clients of the run, once they are known: another is refused, and so is one
    that has become somebody else. `needed` is the number of clients worth waiting for.
    """

    def __init__(self, grid: Grid, patience: float, poll: float = POLL) -> None:
        self.grid, self.patience, self.poll = grid, patience, poll
        self.nodes: dict[str, int] = {}  # client -> node
        self.expected: dict[str, Introduction] = {}
        self.needed = 0
        self.refuse: Callable[[str, Problem], None] = _warn
        self._greeted: dict[int, float] = {}  # node -> when to greet it again

    def greet(self) -> list[Introduction]:
        """Introductions of nodes that have not been heard of."""
        now, ids = time.monotonic(), set(self.grid.get_node_ids())
        self._greeted = {node: when for node, when in self._greeted.items() if node in ids}
        new = sorted(node for node in ids if self._greeted.get(node, 0.0) <= now)
        found = []
        for node, reply in self._send(
            {node: Hello("", start=False) for node in new}, min(GREETING, self.patience)
        ):
            self._greeted[node] = time.monotonic() + AGAIN
            if isinstance(reply, Introduction):
                wrong = self._problem_with(reply)
                if wrong is None:
                    self._greeted[node] = math.inf
                    self.nodes[reply.client] = node
                    found.append(reply)
                    continue
                self.refuse(reply.client, wrong)
            else:
                why = reply.reason if isinstance(reply, Failure | Refusal) else str(reply)
                _warn(f"node {node}", Problem("hello", f"it did not introduce itself: {why}"))
        return found

    def _problem_with(self, one: Introduction) -> Problem | None:
        wrong = problem_with(one)
        if wrong is not None or not self.expected:
            return wrong
        known = self.expected.get(one.client)
        if known is None:
            return Problem("unknown_client", "it is not on the roster of this run.")
        if (one.alpha, one.layout) != (known.alpha, known.layout):
            return Problem(
                "changed",
                f"its alpha is {one.alpha:g} and its layout {one.layout}; at the start of the run "
                f"they were {known.alpha:g} and {known.layout}.",
            )
        return None

    def start_of(self, client: str) -> Introduction:
        """The introduction of one client with the point to start from."""
        requests = {self.nodes[client]: Hello("", start=True)}
        for _, reply in self._send(requests, min(GREETING, self.patience)):
            if isinstance(reply, Introduction) and reply.client == client and reply.start:
                wrong = problem_with(reply, reply.layout)
                if wrong is None:
                    return reply
        raise ScafflixError(f"Client {client} did not send the point to start from.")

    def present(self, clients: Iterable[str]) -> list[str]:
        """Those of the clients behind whom there is a node now."""
        ids = set(self.grid.get_node_ids())
        return [client for client in clients if self.nodes.get(client) in ids]

    def wait_for(self, clients: Iterable[str], count: int, seconds: float) -> None:
        """Greet whoever comes until so many of the clients are there, or the time is up."""
        names, until = list(clients), time.monotonic() + seconds
        self.greet()
        while len(self.present(names)) < count and time.monotonic() < until:
            time.sleep(self.poll)
            self.greet()

    def exchange(self, requests: Mapping[str, Request]) -> Iterable[tuple[str, Reply | Failure]]:
        if not requests:
            return
        training = any(isinstance(request, Train) for request in requests.values())
        count = min(self.needed, len(requests)) if training else len(requests)
        self.wait_for(requests, count, self.patience if training else min(AGAIN, self.patience))
        present = self.present(requests)
        for client in requests:
            if client not in present:
                yield client, Failure("no node of this client is there.")
        clients = {self.nodes[client]: client for client in present}
        asked = {node: requests[client] for node, client in clients.items()}
        for node, reply in self._send(asked, self.patience):
            yield clients[node], reply

    def _send(self, requests: Mapping[int, Request], patience: float) -> Iterator[tuple[int, Any]]:
        """Push, then look for replies until all came or the time is up."""
        messages = [self._message(node, request) for node, request in requests.items()]
        ids = list(self.grid.push_messages(messages)) if messages else []
        sent = list(zip(ids, requests, strict=True))
        waiting = {message: node for message, node in sent if message}
        for message, node in sent:
            if not message:
                yield node, Failure("the message could not be sent.")
        until = time.monotonic() + patience
        while waiting and time.monotonic() < until:
            for reply in self.grid.pull_messages(list(waiting)):
                answered = reply.metadata.reply_to_message_id
                if answered in waiting:
                    yield waiting.pop(answered), _content(reply)
            if waiting:
                time.sleep(self.poll)
        for node in waiting.values():
            yield node, Failure(f"no reply came within {patience:g} seconds.")

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
            group_id=str(getattr(request, "round", 0)),
        )


def _warn(sender: str, wrong: Problem) -> None:
    LOG.warning("%s: %s: %s", sender, wrong.kind, wrong.reason)


def _content(message: Message) -> Any:
    """What a reply says: a message, a failure, or something that the core will refuse."""
    if message.has_error():
        reason = (message.error.reason or "").strip().splitlines()
        return Failure(f"error {message.error.code}: {reason[-1] if reason else 'no reason'}")
    try:
        return unpack(message.content)
    except ScafflixError as error:
        return str(error)


def gather(transport: FlowerTransport, count: int, order: list[str]) -> Roster:
    """Wait until as many clients have introduced themselves; natural order, unless one is given."""
    found: dict[str, Introduction] = {}
    until = time.monotonic() + transport.patience
    wanted = max(count, len(order), 1)
    while True:
        for one in transport.greet():
            if not order or one.client in order:
                found[one.client] = one
        if len(found) >= wanted:
            break
        if time.monotonic() > until:
            raise ScafflixError(
                f"{len(found)} of {wanted} clients introduced themselves within "
                f"{transport.patience:g} seconds: {', '.join(sorted(found)) or 'none'}."
            )
        time.sleep(transport.poll)
    names = order or sorted(found, key=_natural)
    return new_roster([found[name] for name in names])


def _natural(name: str) -> list[tuple[int, str]]:
    """client-2 before client-10."""
    return [(int(w), "") if w.isdigit() else (0, w) for w in re.findall(r"\d+|\D+", name)]


def method_of(config: DeployConfig, roster: Roster) -> tuple[Method, str]:
    """The method for the clients that take part, and the pace of its control variates."""
    people = [one for one in roster.introductions if one.alpha > 0]
    if not people:
        raise ScafflixError("Every alpha is 0: nobody takes part, and no round is needed.")
    batch = "full" if config.batch == "auto" else config.batch
    stepsize, p = config.stepsize, config.p
    plan = advice(
        people,
        gradients.gradient(batch),
        None if isinstance(stepsize, str) else float(stepsize),
        None if isinstance(p, str) else float(p),
    )
    known = all(one.gamma > 0 for one in people)
    method = make_method(plan, config.method, stepsize if known else "auto", p, config.pace)
    pace = "expected" if config.pace == "auto" else config.pace
    return method, pace if config.method in PACED else ""


def run(
    grid: Grid,
    config: DeployConfig,
    folder: Path,
    *,
    nodes: int = 0,
    order: list[str] | None = None,
    new_epoch: bool = False,
    poll: float = POLL,
    progress: Progress | None = None,
) -> Record:
    """A whole run, begun or taken up again in its folder; its record is in `folder/record`."""
    with durable.locked(durable.new_folder(folder), patience=60.0):
        return _run(grid, config, folder, nodes, order or [], new_epoch, poll, progress)


def _run(
    grid: Grid,
    config: DeployConfig,
    folder: Path,
    nodes: int,
    order: list[str],
    new_epoch: bool,
    poll: float,
    progress: Progress | None,
) -> Record:
    began = time.monotonic()
    transport = FlowerTransport(grid, config.patience, poll)
    kept = Roster.load(folder)
    if kept is None:
        roster = gather(transport, nodes, order)
        start = transport.start_of(roster.introductions[0].client).start
        roster.save(folder, start)
    else:
        roster, start = kept
    method, pace = method_of(config, roster)
    settings = Settings(
        rounds=config.rounds,
        cohort=config.cohort,
        minimum=config.minimum,
        attempts=config.attempts,
        seed=config.seed,
        mirror=config.mirror,
        pace=pace,
    )
    core = ServerCore(folder, roster, method, start, settings)
    transport.expected = {one.client: one for one in roster.introductions}
    transport.needed, transport.refuse = core.minimum, core.refuse
    if kept is not None:
        transport.wait_for(core.names, len(core.names), min(GREETING, config.patience))
    if new_epoch:
        core.new_epoch()
    serve(core, transport, progress)
    kept_config = {name: value for name, value in plain(config).items() if value != []}
    made = record(core, kept_config, time.monotonic() - began)
    made.save(folder / "record", force=True)
    return made


def server_app() -> ServerApp:
    """A ServerApp from the run's configuration: settings, folder, nodes, roster, new-epoch."""
    app = ServerApp()

    @app.main()
    def main(grid: Grid, context: Context) -> None:
        asked = context.run_config

        def report(done: int, total: int, state: str) -> None:
            print(f"round {done}/{total} {state}", flush=True)

        run(
            grid,
            config_from(str(asked["settings"])),
            Path(str(asked["folder"])),
            nodes=int(asked["nodes"]),
            order=names_from(str(asked["roster"])),
            new_epoch=bool(asked["new-epoch"]),
            progress=report,
        )
        print(FINISHED, flush=True)

    return app
