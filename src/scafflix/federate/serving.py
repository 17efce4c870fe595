"""The server's loop, over any transport."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, Protocol

from scafflix.federate.closing import Consultation, Farewell
from scafflix.federate.counts import LOG
from scafflix.federate.divergence import ALL
from scafflix.federate.messages import Evaluation, Reply, Request
from scafflix.federate.secure.closing import consult, measure
from scafflix.federate.server import ServerCore
from scafflix.federate.status import Progress

FAREWELLS = 3  # attempts to reach everybody at the end
MOST_NAMES = 5  # in the progress line


class Failure(NamedTuple):
    """A client that was asked will not answer."""

    reason: str
    refuses: bool = False  # it says so itself


class Transport(Protocol):
    """A way to reach clients by their ids."""

    def exchange(self, requests: Mapping[str, Request]) -> Iterable[tuple[str, Reply | Failure]]:
        """Send all requests; yield each client and its reply until all have replied or time is up.

        Late or repeated replies to earlier messages may be among them.
        """


class Asking(Protocol):
    """An open round or the farewell: what to send, and how to take in the replies."""

    def requests(self) -> Mapping[str, Request]:
        """A message to each client that has not answered."""

    def request(self, name: str) -> Request:
        """The message to one client."""

    def receive(self, sender: str, reply: Any) -> bool:
        """Take in a reply; return whether to ask its sender again."""


def serve(
    core: ServerCore, transport: Transport, progress: Progress | None = None
) -> dict[str, Evaluation]:
    """Run the remaining rounds; return the clients' reports on their final models."""
    report = progress or (lambda *_: None)
    while not core.done:
        _ask(core, core, transport)
        if core.close():
            report(core.round, core.settings.rounds, _who(core))
    consultation, secure = Consultation(core), core.settings.secure_aggregation

    def ask(asking: Asking) -> None:
        _ask(asking, core, transport)

    if secure:
        consult(consultation, ask)
    else:
        _ask_all(consultation, core, transport)
    core.others = consultation.others
    farewell = Farewell(core, consultation)
    _ask_all(farewell, core, transport)
    if secure:
        core.reported = measure(farewell, ask)
        core.settle({ALL: core.reported["loss"]} if core.reported["clients"] else {})
    else:
        core.settle({name: one.loss for name, one in farewell.evaluations.items()})
    return farewell.evaluations


def _ask_all(asking: Consultation | Farewell, core: ServerCore, transport: Transport) -> None:
    """Ask a few times, until everybody has answered."""
    for _ in range(FAREWELLS):
        if asking.unsettled:
            _ask(asking, core, transport)


def _who(core: ServerCore) -> str:
    """How many replied, and who did not."""
    assert core.closed is not None
    replied, asked, absent = core.closed
    spent = core.spending.worst
    private = "" if spent is None else f", epsilon {spent:.3g}"
    if not absent:
        return f"{replied} clients{private}"
    LOG.warning("round %d: closed without %s", core.round, ", ".join(absent))
    names = ", ".join(absent[:MOST_NAMES]) + (" and others" if len(absent) > MOST_NAMES else "")
    return f"{replied} of {asked} clients, without {names}{private}"


def _ask(asking: Asking, core: ServerCore, transport: Transport) -> None:
    """Exchange messages, and once more with clients whose lost state can be restored."""
    again = _exchange(asking.requests(), asking, core, transport)
    if again:
        _exchange({name: asking.request(name) for name in again}, asking, core, transport)


def _exchange(
    requests: Mapping[str, Request], asking: Asking, core: ServerCore, transport: Transport
) -> list[str]:
    """Exchange messages; return the clients to ask again."""
    again = []
    for sender, reply in transport.exchange(requests):
        if isinstance(reply, Failure):
            core.fail(sender, reply.reason)
        elif asking.receive(sender, reply):
            again.append(sender)
    return again
