"""The end of a run: every client settles its last upload, reports, and saves its model.

Where clients choose alpha_i by a rule, they are asked twice: for their curves, of which the server
needs only the sum, then with the mean. Either question may be repeated.
"""

from __future__ import annotations

from typing import Any

from scafflix.core.durable import Arrays
from scafflix.federate import judging
from scafflix.federate.messages import (
    Curve,
    Evaluate,
    Evaluation,
    Fault,
    Refusal,
    Upload,
    fault_of,
)
from scafflix.federate.server import ServerCore
from scafflix.personalization.rules.choosing import consults
from scafflix.personalization.rules.contract import Told


class Closing:
    """A question that is repeated until a client has answered; an `Asking`, like a round."""

    wanted: type[Curve | Evaluation]

    def __init__(self, core: ServerCore, names: list[str]) -> None:
        self.core, self.names = core, names
        self.replies: dict[str, Any] = {}

    @property
    def unsettled(self) -> list[str]:
        """Clients that have not answered."""
        return [name for name in self.names if name not in self.replies]

    def requests(self) -> dict[str, Evaluate]:
        """A message to each client that has not answered yet."""
        return {name: self.request(name) for name in self.unsettled}

    def request(self, name: str) -> Evaluate:
        """The message to one client."""
        return self.message(name, self.core.x, ())

    def message(self, name: str, point: Arrays, others: Arrays) -> Evaluate:
        """The same with this model and this mean curve, and counted."""
        core = self.core
        average = core.down(core.average_for(core.ledger.entries[name]))
        point = core.down(point)
        message = Evaluate(**core.address(name), point=point, average=average, others=others)
        core.tally.sent(message.point, message.average, message.restored, message.others)
        return message

    def receive(self, sender: str, reply: Any) -> bool:
        """Take in an answer; return whether to ask again."""
        core = self.core
        if isinstance(reply, Refusal):
            return core.receive_refusal(sender, reply)
        if isinstance(reply, Upload | Curve | Evaluation) and not isinstance(reply, self.wanted):
            core.tally.counts["late"] += 1
            return False
        wrong = self.problem_with(sender, reply)
        if wrong is not None:
            core.refuse(sender, wrong)
            return False
        self.replies[sender] = reply
        core.ledger.confirm(sender, reply.committed)
        return False

    def problem_with(self, sender: str, reply: Any) -> Fault | None:
        """What is wrong with an answer."""
        if not isinstance(reply, self.wanted):
            kind = type(reply).__name__
            return Fault("type", f"its reply is of type {kind}; it must be {self.wanted.__name__}.")
        if reply.client != sender or sender not in self.names:
            return Fault("unknown_client", f"its reply is in the name of {reply.client!r}.")
        place = (reply.run, reply.epoch, reply.round)
        if place != (self.core.run, self.core.epoch, self.core.round):
            return Fault(
                "round", f"its reply is for round {reply.round}; this is round {self.core.round}."
            )
        return fault_of(reply)


class Consultation(Closing):
    """The curves of the clients that choose alpha_i by what all of them tell."""

    wanted = Curve

    def __init__(self, core: ServerCore) -> None:
        people = core.roster.introductions
        super().__init__(core, [one.client for one in people if one.rule and consults(one.rule)])
        self.summed: Told | None = None  # by secure aggregation, instead of replies

    @property
    def others(self) -> Told | None:
        """The mean of the curves that came; None where nobody was asked."""
        if not self.names or self.summed is not None:
            return self.summed
        came = [name for name in self.names if name in self.replies]
        return judging.mean_of(self.replies[name].curve for name in came)

    def receive(self, sender: str, reply: Any) -> bool:
        """Take in an answer; return whether to ask again."""
        again = super().receive(sender, reply)
        if sender in self.replies and self.replies[sender] is reply:
            self.core.tally.received(reply.curve)
        return again

    def problem_with(self, sender: str, reply: Any) -> Fault | None:
        """What is wrong with an answer; one that knows nothing sends an empty curve."""
        wrong = super().problem_with(sender, reply)
        if wrong is not None or not reply.curve:
            return wrong
        return judging.problem_with_sums(reply.curve)


class Farewell(Closing):
    """The clients' reports on the models that they take home."""

    wanted = Evaluation

    def __init__(self, core: ServerCore, consultation: Consultation | None = None) -> None:
        super().__init__(core, core.names)
        others = None if consultation is None else consultation.others
        self._others = () if others is None else judging.arrays_of(others)
        self._choosing = set() if consultation is None else set(consultation.names)
        self._have_x = set() if consultation is None else set(consultation.replies)

    @property
    def evaluations(self) -> dict[str, Evaluation]:
        """The reports that came."""
        return self.replies

    def request(self, name: str) -> Evaluate:
        """The last message to one client: without the model, if it has it since its curve."""
        point = () if name in self._have_x else self.core.x
        return self.message(name, point, self._others if name in self._choosing else ())

    def receive(self, sender: str, reply: Any) -> bool:
        """Take in an answer; return whether to ask again."""
        if isinstance(reply, Refusal):
            self._have_x.discard(sender)  # it may have lost it
        return super().receive(sender, reply)
