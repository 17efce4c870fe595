"""What a server counts: what went wrong, by kind and by client, and the bits of models sent."""

from __future__ import annotations

import logging
from collections import Counter
from typing import Any

from scafflix.core.durable import Arrays
from scafflix.core.errors import one_line
from scafflix.federate.messages import Fault

LOG = logging.getLogger("scafflix.federate")


def _printable(record: logging.LogRecord) -> bool:
    """One line that a terminal does not obey, whatever a client wrote."""
    record.msg, record.args = one_line(record.getMessage()), ()
    return True


LOG.addFilter(_printable)


class Tally:
    """Of a whole run; `recent` is of the open round alone."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.refused_of: Counter[str] = Counter()  # by client
        self.recent: Counter[str] = Counter()
        self.bits_up = self.bits_down = 0

    def refuse(self, round: int, sender: str, wrong: Fault) -> None:
        """Count a message that is refused, and say whose it was."""
        self.counts["refused"] += 1
        self.refused_of[sender] += 1
        self.note(round, sender, wrong)

    def note(self, round: int, sender: str, wrong: Fault) -> None:
        """Count a trouble and log it with the client's name."""
        self.counts[wrong.kind] += 1
        self.recent[f"{sender}: {wrong.kind}"] += 1
        LOG.warning("round %d, client %s: %s: %s", round, sender, wrong.kind, wrong.reason)

    def sent(self, *points: Arrays) -> None:
        """Models on their way to a client."""
        self.bits_down += _bits(points)

    def received(self, *points: Arrays) -> None:
        """Models that came from a client."""
        self.bits_up += _bits(points)

    def plain(self) -> dict[str, Any]:
        """As JSON can hold it."""
        return {
            "counts": dict(self.counts),
            "refused_of": dict(self.refused_of),
            "bits": [self.bits_up, self.bits_down],
        }

    @staticmethod
    def of(plain: dict[str, Any]) -> Tally:
        """What `plain` wrote."""
        made = Tally()
        made.counts, made.refused_of = Counter(plain["counts"]), Counter(plain["refused_of"])
        made.bits_up, made.bits_down = plain["bits"]
        return made


def _bits(points: tuple[Arrays, ...]) -> int:
    return sum(8 * array.nbytes for point in points for array in point)
