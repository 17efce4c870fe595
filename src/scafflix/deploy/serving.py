"""The loop of a server over any transport."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple, Protocol

from scafflix.deploy.messages import Reply, Request
from scafflix.deploy.server import ServerCore

FAREWELLS = 3  # attempts to reach everybody at the end

Progress = Callable[[int, int, str], None]  # rounds done, of how many, how it stands


class Failure(NamedTuple):
    """A client that was asked will not answer."""

    reason: str


class Transport(Protocol):
    """A way to reach clients by their ids."""

    def exchange(self, requests: Mapping[str, Request]) -> Iterable[tuple[str, Reply | Failure]]:
        """Send each, and yield who was asked and what came, until all answered or time is up.

        Late and repeated replies to earlier messages may be among them.
        """


def serve(core: ServerCore, transport: Transport, progress: Progress | None = None) -> None:
    """Run the rounds that are left, then let every client settle and take its model home."""
    report = progress or (lambda *_: None)
    while not core.done:
        _ask(core.requests(), transport, core.receive, core, core.request)
        if core.close():
            report(core.round, core.settings.rounds, f"{len(core.names)} clients")
    for _ in range(FAREWELLS):
        _ask(core.farewells(), transport, core.receive_evaluation, core, core.farewell)
        if not core.unsettled:
            break
    core.settle()


def _ask(
    requests: Mapping[str, Request],
    transport: Transport,
    receive: Callable[[str, Any], bool],
    core: ServerCore,
    request: Callable[[str], Request],
) -> None:
    """Exchange, and once more with those whose lost state can be given back."""
    again = []
    for sender, reply in transport.exchange(requests):
        if isinstance(reply, Failure):
            core.fail(sender, reply.reason)
        elif receive(sender, reply):
            again.append(sender)
    if again:
        for sender, reply in transport.exchange({name: request(name) for name in again}):
            if isinstance(reply, Failure):
                core.fail(sender, reply.reason)
            else:
                receive(sender, reply)
