"""What a reader of people's data returns: examples that already have their clients."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from scafflix.core.errors import ScafflixError
from scafflix.data.federation import Features, Labels

Clients = Mapping[str, tuple[Features, Labels]]
"""The features and labels of each client, in the order of the source."""

SIZE_LIMIT = 2**31
"""The most bytes of examples that a source may hold; the largest known has 0.6 billion."""


@dataclass(frozen=True, eq=False)
class Parts:
    """The training examples of each client and, where the source brings them, its test ones."""

    train: Clients
    test: Clients | None = None


class Budget:
    """Counts the bytes read from a source, so that a small file cannot fill the memory."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.spent = 0

    def spend(self, size: int) -> None:
        """Count so many bytes, before they are taken if their number is known."""
        self.spent += size
        if self.spent > SIZE_LIMIT:
            raise ScafflixError(
                f"{self.path}: its examples take more than {SIZE_LIMIT} bytes; use fewer clients."
            )
