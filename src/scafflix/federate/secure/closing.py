"""What clients report at the end of a run, of which the server learns the sum only."""

from __future__ import annotations

import math
import secrets
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from scafflix.core.types import Floats
from scafflix.federate.closing import Consultation, Farewell
from scafflix.federate.files import Moment
from scafflix.federate.messages import Evaluate, Fault, Refusal
from scafflix.federate.secure.fixed import DOUBLE
from scafflix.federate.secure.gathering import STAGES, Gathering
from scafflix.federate.secure.masks import Occasion
from scafflix.federate.secure.messages import Keys, Masked, Unmasked
from scafflix.federate.secure.numbers import REPORTED
from scafflix.federate.secure.server import SecureServer
from scafflix.personalization.rules import blending

ATTEMPTS = 3  # to gather a report
FEWEST = 2  # clients in a sum


class Report:
    """The sum of some numbers of these clients; an `Asking`, like a round.

    There is one for the model at the end of a round, and it is kept: another, with other clients in
    it, would give away who made the difference.
    """

    def __init__(
        self, core: SecureServer, names: list[str], first: Callable[[str], Evaluate], what: str
    ) -> None:
        self.core, self.names, self.first, self.what = core, names, first, what
        self.sums: Floats | None = None
        self.at = Moment(core.epoch, core.round)
        kept = core.files.masked(self.at, what)
        if kept is not None and "sums" in kept[0]:
            self.sums = np.array(kept[0]["sums"])
        elif kept is not None:
            self.gathering = Gathering.of(kept[0], kept[1][0], DOUBLE)
        else:
            self._gather()

    def _gather(self) -> None:
        core, size = self.core, blending.SUMS if self.what == "curve" else 2 * len(REPORTED)
        occasion = Occasion(core.run, core.epoch, core.round, secrets.token_hex(16))
        threshold = max(FEWEST, len(self.names) // 2 + 1)
        self.gathering = Gathering(occasion, threshold, DOUBLE, size)

    def requests(self) -> Mapping[str, Any]:
        """A message to each client that has not answered in this stage."""
        asked = self.names if self.gathering.stage is Keys else self.gathering.asked
        return {name: self.request(name) for name in asked if name not in self.gathering.came}

    def request(self, name: str) -> Any:
        """The message to one client."""
        if self.gathering.stage is Keys:
            return self.first(name)._replace(attempt=self.gathering.occasion.attempt)
        return self.gathering.request(name)

    def receive(self, sender: str, reply: Any) -> bool:
        """Take in an answer."""
        if isinstance(reply, Refusal):
            return self.core.receive_refusal(sender, reply)
        wrong = None
        if not isinstance(reply, STAGES):
            kind = type(reply).__name__
            wrong = Fault("type", f"its reply is of type {kind}; it must be Keys.")
        elif isinstance(reply, Keys) and reply.weight != 1:
            wrong = Fault("weight", f"its weight is {reply.weight:g}; in a report it is 1.")
        self.core.take_in(self.gathering, sender, reply, wrong)
        return False

    def close(self) -> None:
        """Go on to the next stage, or begin again."""
        now = self.gathering
        if len(now.came) < now.threshold:
            if now.stage is not Unmasked:
                self._gather()
        elif now.stage is Unmasked:
            self.sums = now.sums()
            self.core.files.keep_masked(self.at, {"sums": self.sums.tolist()}, [], self.what)
        else:
            if now.stage is Masked:
                self.core.files.keep_masked(self.at, now.plain(), [now.total], self.what)
            now.advance()

    def gather(self, ask: Callable[[Report], None]) -> Floats | None:
        """The sum; None if too few answer."""
        if len(self.names) < FEWEST:
            return None
        for _ in range(ATTEMPTS * len(STAGES)):
            if self.sums is None:
                ask(self)
                self.close()
        return self.sums


def consult(consultation: Consultation, ask: Callable[[Report], None]) -> None:
    """The mean of the clients' curves, from their sum."""
    core = consultation.core
    assert isinstance(core, SecureServer)
    if consultation.names:
        sums = Report(core, consultation.names, consultation.request, "curve").gather(ask)
        consultation.summed = blending.NOTHING if sums is None else blending.mean(sums)


def measure(farewell: Farewell, ask: Callable[[Report], None]) -> dict[str, float]:
    """The means of what clients report of their models, and of how many each is."""
    core = farewell.core
    assert isinstance(core, SecureServer)
    names = [name for name in core.names if name in farewell.evaluations]
    sums = Report(core, names, farewell.request, "evaluation").gather(ask)
    if sums is None:
        return {"clients": 0, **dict.fromkeys(REPORTED, math.nan)}
    totals, counts = sums[::2], np.round(sums[1::2])
    means = np.divide(totals, counts, out=np.full(len(totals), np.nan), where=counts > 0)
    return {"clients": int(counts[0]), **dict(zip(REPORTED, means.tolist(), strict=True))}
