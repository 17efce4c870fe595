"""Who was in which average, and what must be kept until everybody has taken it in."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from scafflix.federate.messages import NONE


@dataclass
class Entry:
    """One client."""

    included: int = NONE  # the last round of this epoch whose average held an upload of it
    receipt: str = ""  # of that upload
    confirmed: int = NONE  # the last round that it said it committed
    rounds: int = 0  # in how many averages it was, over all epochs


@dataclass
class Ledger:
    """All clients."""

    entries: dict[str, Entry] = field(default_factory=dict)

    def include(self, client: str, round: int, receipt: str) -> None:
        """An upload is in the average of the round."""
        entry = self.entries[client]
        entry.included, entry.receipt = round, receipt
        entry.rounds += 1

    def confirm(self, client: str, committed: int) -> None:
        """The client's control variate has taken in that round."""
        self.entries[client].confirmed = committed

    def waiting(self) -> set[int]:
        """The rounds whose average somebody still has to commit."""
        return {
            entry.included for entry in self.entries.values() if entry.included != entry.confirmed
        }

    def new_epoch(self) -> None:
        """All control variates are zero again: nothing is to be committed."""
        self.entries = {client: Entry(rounds=e.rounds) for client, e in self.entries.items()}

    def plain(self) -> dict[str, Any]:
        """As JSON can hold it."""
        return {client: asdict(entry) for client, entry in self.entries.items()}

    @staticmethod
    def of(plain: dict[str, Any]) -> Ledger:
        """What `plain` wrote."""
        return Ledger({client: Entry(**entry) for client, entry in plain.items()})
