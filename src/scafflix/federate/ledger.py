"""Who was in which average, and what must be kept until every client has committed it."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from scafflix.federate.messages import NONE


@dataclass
class Entry:
    """One client."""

    included: int = NONE  # the last round of this epoch whose average included its upload
    receipt: str = ""  # of that upload
    confirmed: int = NONE  # the last round that it reported as committed
    rounds: int = 0  # the number of averages it was in, over all epochs


@dataclass
class Ledger:
    """All clients."""

    entries: dict[str, Entry] = field(default_factory=dict)

    def include(self, client: str, round: int, receipt: str) -> None:
        """Note that a client's upload is in the average of the round."""
        entry = self.entries[client]
        entry.included, entry.receipt = round, receipt
        entry.rounds += 1

    def confirm(self, client: str, committed: int) -> None:
        """Note that a client has committed that round to its control variate."""
        self.entries[client].confirmed = committed

    def waiting(self) -> set[int]:
        """The rounds whose average some client still has to commit."""
        return {
            entry.included for entry in self.entries.values() if entry.included != entry.confirmed
        }

    def new_epoch(self) -> None:
        """All control variates are zero again, so nothing is left to commit."""
        self.entries = {client: Entry(rounds=e.rounds) for client, e in self.entries.items()}

    def plain(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {client: asdict(entry) for client, entry in self.entries.items()}

    @staticmethod
    def of(plain: dict[str, Any]) -> Ledger:
        """Read back what `plain` returned."""
        return Ledger({client: Entry(**entry) for client, entry in plain.items()})
