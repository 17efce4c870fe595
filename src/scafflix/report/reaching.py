"""What it took until the models that clients take home were good enough."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from scafflix.record import Record
from scafflix.report.accuracy import with_fate
from scafflix.report.table import Table
from scafflix.runs.reproduction import Line, Panel

LEVELS = (70, 75, 80, 85)  # percent of all examples
NEVER, NOT = (np.inf,) * 3, "not reached"


def table(panel: Panel) -> Table | None:
    """Rounds, megabytes that all clients sent and received, and local steps of a client that takes
    part in every round, until the test accuracy over examples was first seen to be as high, at the
    looks of the run: medians over seeds. None for linear models, which come in divisions.

    What a line is about must be known at every look: models that clients tune only when the rounds
    are over have no row.
    """
    lines = followed(panel)
    if not lines:
        return None
    rows = [(with_fate(line), *(reached(line, level) for level in LEVELS)) for line in lines]
    what = "rounds / MB of all clients, both ways / local steps"
    title = f"{panel.title}: {what} until a test accuracy was first seen"
    return Table(title, ("", *(f"{level} %" for level in LEVELS)), rows)


def followed(panel: Panel) -> list[Line]:
    """The lines whose models are known at every look."""
    return [line for line in panel.lines if _followed(line)]


def _followed(line: Line) -> bool:
    """Whether the run's curve is of the models that the line is about."""
    shared = line.kind == "global"
    return all(
        f"{record.config['part']}_{line.kind}" in record.metrics
        and record.summary["metric"] == "accuracy"
        and (shared or (line.kind == "personal" and not record.summary["tuned"]))
        for record in line.records
    )


def reached(line: Line, level: float) -> str:
    """In words."""
    return in_words(np.median([_cost(one, line.kind, level) for one in line.records], axis=0))


def in_words(cost: ArrayLike) -> str:
    """Rounds, megabytes and steps.

    >>> in_words((120, 11582.4, 601)), in_words(NEVER)
    ('120 / 11,582 / 601', 'not reached')
    """
    numbers = np.asarray(cost)
    return " / ".join(f"{one:,.0f}" for one in numbers) if np.isfinite(numbers).all() else NOT


def _cost(record: Record, kind: str, level: float) -> tuple[float, ...]:
    metrics = record.metrics
    good = np.flatnonzero(100 * metrics[f"{record.config['part']}_{kind}"] >= level)
    if not len(good):
        return NEVER
    at = good[0]
    megabytes = (metrics["bits_up"][at] + metrics["bits_down"][at]) / 8e6
    rounds = metrics["round"][at] + record.summary["warmup_rounds"]
    return float(rounds), float(megabytes), float(metrics["iterations"][at])
