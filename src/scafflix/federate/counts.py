"""The server's counts: problems by kind and by client, and the bits of models sent."""

from __future__ import annotations

import logging
from collections import Counter
from typing import Any

from scafflix.core.durable import Arrays
from scafflix.core.errors import one_line
from scafflix.federate.messages import Fault

LOG = logging.getLogger("scafflix.federate")


def _printable(record: logging.LogRecord) -> bool:
    """Make the record one printable line, without terminal escapes, whatever a client wrote."""
    record.msg, record.args = one_line(record.getMessage()), ()
    return True


LOG.addFilter(_printable)


class Tally:
    """Counts of a whole run; `recent` and `reasons` cover only the open round."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.refused_of: Counter[str] = Counter()  # by client
        self.recent: Counter[str] = Counter()
        self.reasons: dict[str, str] = {}  # of each client, the last in the open round
        self.bits_up = self.bits_down = 0

    def refuse(self, round: int, sender: str, wrong: Fault) -> None:
        """Count a refused message, and log who sent it."""
        self.counts["refused"] += 1
        self.refused_of[sender] += 1
        self.note(round, sender, wrong)

    def note(self, round: int, sender: str, wrong: Fault) -> None:
        """Count a problem, and log it with the client's name."""
        self.counts[wrong.kind] += 1
        self.recent[f"{sender}: {wrong.kind}"] += 1
        self.reasons[sender] = wrong.reason
        LOG.warning("round %d, client %s: %s: %s", round, sender, wrong.kind, wrong.reason)

    def open_round(self) -> None:
        """Begin to count for another round."""
        self.recent.clear()
        self.reasons.clear()

    def sent(self, *points: Arrays) -> None:
        """Count models sent to a client."""
        self.bits_down += _bits(points)

    def received(self, *points: Arrays) -> None:
        """Count models received from a client."""
        self.bits_up += _bits(points)

    def plain(self) -> dict[str, Any]:
        """The counts as plain values, for JSON."""
        return {
            "counts": dict(self.counts),
            "refused_of": dict(self.refused_of),
            "bits": [self.bits_up, self.bits_down],
        }

    @staticmethod
    def of(plain: dict[str, Any]) -> Tally:
        """Read back what `plain` returned."""
        made = Tally()
        made.counts, made.refused_of = Counter(plain["counts"]), Counter(plain["refused_of"])
        made.bits_up, made.bits_down = plain["bits"]
        return made


def _bits(points: tuple[Arrays, ...]) -> int:
    return sum(8 * array.nbytes for point in points for array in point)
