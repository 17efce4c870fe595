"""The runs of a comparison, gathered by data, method and alpha over their seeds."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scafflix.record import Record
from scafflix.runs.config import ProblemConfig

Floats = NDArray[np.float64]


# below these a difference of float64 objectives is rounding; squares are never differences
FLOORS = {
    "objective_gap": 1e-17,
    "grad_norm_sq": 1e-300,
    "lyapunov": 1e-300,
    "lyapunov_bound": 1e-300,
}
# what tells problems apart, as far as a record says
PROBLEM = frozenset(entry.name for entry in fields(ProblemConfig))


@dataclass(frozen=True)
class Family:
    """Runs that differ only in their seed."""

    data: str  # with what tells it apart from other problems on the same data
    method: str  # with what tells it apart from other runs of the method, as its stepsize
    alpha: Any  # a number, or the label of a file or of several
    records: tuple[Record, ...]

    @property
    def rounds(self) -> NDArray[np.int64]:
        """`[1 + rounds]`, as many as all seeds have; those of a warm-up come before."""
        first = self.records[0]
        least = min(len(record.metrics["round"]) for record in self.records)
        return first.metrics["round"][:least] + first.summary.get("warmup_rounds", 0)

    @property
    def own_models(self) -> bool:
        """Whether clients take home models of their own, of which the gap says nothing."""
        return bool(self.records[0].summary.get("own_models"))

    def metric(self, name: str) -> Floats:
        """`[seeds, 1 + rounds]`."""
        many = len(self.rounds)
        return np.array([record.metrics[name][:many] for record in self.records], dtype=float)

    def band(self, name: str) -> tuple[Floats, Floats, Floats]:
        """Mean, least and largest over seeds; the mean is geometric for what falls to zero."""
        values = self.metric(name)
        if name in FLOORS:
            values = np.maximum(values, FLOORS[name])
        mean = np.exp(np.log(values).mean(axis=0)) if name in FLOORS else values.mean(axis=0)
        return mean, values.min(axis=0), values.max(axis=0)

    def rounds_to(
        self, level: float, name: str = "objective_gap", rising: bool = False
    ) -> float | None:
        """The median over seeds of the rounds until the metric has fallen, or risen, to the level;
        None if one never gets there."""
        values = self.metric(name)
        reached = values >= level if rising else values <= level
        if not reached.any(axis=1).all():
            return None
        return float(np.median(self.rounds[reached.argmax(axis=1)]))

    def megabytes(self, rounds: float) -> float:
        """What all clients send and receive in so many rounds."""
        return float(np.interp(rounds, self.rounds, self.traffic))

    @property
    def traffic(self) -> Floats:
        """Megabytes that all clients have sent and received after each round."""
        bits = self.metric("bits_up")[0] + self.metric("bits_down")[0]
        return np.asarray(bits / 8e6)

    def scores(self, part: str, kind: str) -> Floats:
        """Per-client scores of the first seed, for clients that have examples in this part."""
        values = self.records[0].clients[f"{part}_{kind}"]
        return values[np.isfinite(values)]


def families(records: Sequence[Record]) -> list[Family]:
    """Group records, keeping their order."""
    groups: dict[str, list[Record]] = {}
    for record in records:
        asked = {name: value for name, value in record.config.items() if name != "seed"}
        groups.setdefault(repr(sorted(asked.items())), []).append(record)
    firsts = [found[0].config for found in groups.values()]
    return [
        Family(
            _panel(config, firsts),
            _label(config, [one for one in firsts if one["data"] == config["data"]]),
            _hashable(config["alpha"]),
            tuple(found),
        )
        for config, found in zip(firsts, groups.values(), strict=True)
    ]


def _panel(config: Mapping[str, Any], all_of_them: Sequence[Mapping[str, Any]]) -> str:
    alike = [one for one in all_of_them if one["data"] == config["data"]]
    differing = _differing(config, alike, PROBLEM - {"data"})
    return ", ".join([str(config["data"]), *(f"{k} {v}" for k, v in differing.items())])


def _label(config: Mapping[str, Any], all_of_them: Sequence[Mapping[str, Any]]) -> str:
    """The method, and where runs differ in more than method and alpha, in what."""
    others = set().union(*all_of_them) - PROBLEM - {"method", "alpha", "seed"}
    differing = _differing(config, all_of_them, others)
    stepsize = differing.pop("stepsize", None)
    if isinstance(config.get("stepsize"), str) and config["stepsize"] != "auto":
        stepsize = config["stepsize"]
    method = config["method"] if stepsize is None else f"{config['method']}:{stepsize}"
    return ", ".join([method, *(f"{name} {value}" for name, value in differing.items())])


def _differing(
    config: Mapping[str, Any], all_of_them: Sequence[Mapping[str, Any]], names: Set[str]
) -> dict[str, Any]:
    """The entries that are not the same in all; what is left to theory needs no word."""
    return {
        name: config[name]
        for name in sorted(names & config.keys())
        if config[name] != "auto" and any(one.get(name) != config[name] for one in all_of_them)
    }


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
