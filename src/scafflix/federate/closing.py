"""The end of a run: every client settles its last upload, reports, and saves its model."""

from __future__ import annotations

from typing import Any

from scafflix.federate.messages import Evaluate, Evaluation, Fault, Refusal, Upload, fault_of
from scafflix.federate.server import ServerCore


class Farewell:
    """The clients' reports on the final model; an `Asking`, like a round."""

    def __init__(self, core: ServerCore) -> None:
        self.core = core
        self.evaluations: dict[str, Evaluation] = {}

    @property
    def unsettled(self) -> list[str]:
        """Clients that have not answered."""
        return [name for name in self.core.names if name not in self.evaluations]

    def requests(self) -> dict[str, Evaluate]:
        """A message to each client that has not answered yet."""
        return {name: self.request(name) for name in self.unsettled}

    def request(self, name: str) -> Evaluate:
        """The last message to one client."""
        core, entry = self.core, self.core.ledger.entries[name]
        message = Evaluate(**core.address(name), point=core.x, average=core.average_for(entry))
        core.tally.sent(message.point, message.average, message.restored)
        return message

    def receive(self, sender: str, reply: Any) -> bool:
        """Take in an answer; return whether to ask again."""
        core = self.core
        if isinstance(reply, Refusal):
            return core.receive_refusal(sender, reply)
        if isinstance(reply, Upload):
            core.tally.counts["late"] += 1
            return False
        wrong = self._problem_with(sender, reply)
        if wrong is not None:
            core.refuse(sender, wrong)
            return False
        self.evaluations[sender] = reply
        core.ledger.confirm(sender, reply.committed)
        return False

    def _problem_with(self, sender: str, reply: Any) -> Fault | None:
        if not isinstance(reply, Evaluation):
            return Fault(
                "type", f"its reply is of type {type(reply).__name__}; it must be Evaluation."
            )
        if reply.client != sender or sender not in self.core.clients:
            return Fault("unknown_client", f"its reply is in the name of {reply.client!r}.")
        place = (reply.run, reply.epoch, reply.round)
        if place != (self.core.run, self.core.epoch, self.core.round):
            return Fault(
                "round", f"its reply is for round {reply.round}; this is round {self.core.round}."
            )
        return fault_of(reply)
