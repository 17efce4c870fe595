"""The runs of a comparison, gathered by data, method and alpha over their seeds."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scafflix.record import Record

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Family:
    """Runs that differ only in their seed."""

    data: str
    method: str  # with its stepsize where that was chosen
    alpha: Any  # a number, or the label of a file or of several
    records: tuple[Record, ...]

    def metric(self, name: str) -> Floats:
        """`[seeds, 1 + rounds]`."""
        return np.array([record.metrics[name] for record in self.records], dtype=float)

    def rounds_to(self, gap: float) -> float | None:
        """The median over seeds of the rounds until the gap is reached; None if one never does."""
        rounds = [record.rounds_to(gap) for record in self.records]
        return None if None in rounds else float(np.median(np.array(rounds, dtype=float)))

    def megabytes(self, rounds: float) -> float:
        """What all clients send and receive in so many rounds."""
        metrics = self.records[0].metrics
        bits = metrics["bits_up"] + metrics["bits_down"]
        return float(np.interp(rounds, metrics["round"], bits) / 8e6)

    def scores(self, part: str, kind: str) -> Floats:
        """Per-client scores of the first seed, for clients that have examples in this part."""
        values = self.records[0].clients[f"{part}_{kind}"]
        return values[np.isfinite(values)]


def families(records: Sequence[Record]) -> list[Family]:
    """Group records, keeping their order."""
    groups: dict[tuple[str, str, str], list[Record]] = {}
    for record in records:
        config = record.config
        stepsize = config.get("stepsize", "auto")
        method = config["method"] if stepsize == "auto" else f"{config['method']}:{stepsize}"
        groups.setdefault((config["data"], method, str(config["alpha"])), []).append(record)
    return [
        Family(data, method, _hashable(found[0].config["alpha"]), tuple(found))
        for (data, method, _), found in groups.items()
    ]


def alpha_label(alpha: Any) -> str:
    """A number as it is, a file by its name, and one value for each client by their range.

    >>> alpha_label(0.10), alpha_label([0.5, 0.0, 1.0])
    ('0.1', '0..1')
    """
    if isinstance(alpha, list | tuple):
        return f"{min(alpha):g}..{max(alpha):g}"
    return f"{alpha:g}" if isinstance(alpha, int | float) else Path(str(alpha)).name


def _hashable(alpha: Any) -> Any:
    return tuple(alpha) if isinstance(alpha, list) else alpha


def write_csv(records: Sequence[Record], path: Path) -> None:
    """Every point of every curve."""
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        names = list(records[0].metrics)
        writer.writerow(["data", "method", "alpha", "seed", *names])
        for family in families(records):
            for record in family.records:
                key = [family.data, family.method, family.alpha, record.config["seed"]]
                writer.writerows([*key, *row] for row in _rows(record, names))


def _rows(record: Record, names: list[str]) -> Iterator[tuple[Any, ...]]:
    return zip(*(record.metrics[name].tolist() for name in names), strict=True)
