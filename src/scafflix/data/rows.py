"""What a reader returns: examples that no client owns yet."""

from __future__ import annotations

from dataclasses import dataclass

from scafflix.data.federation import Features, Labels


@dataclass(frozen=True, eq=False)
class Rows:
    """The rows of a file in its order, with each row's client where the file names it."""

    features: Features  # [rows, dim]
    labels: Labels  # [rows]
    clients: Labels | None = None  # [rows]
