"""What taking part was worth, in words."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from scafflix.record import Record
from scafflix.report.curves import Family, alpha_label, families
from scafflix.report.table import Table


def facts(record: Record) -> dict[str, str]:
    """How alpha was chosen, and who is worse off than alone."""
    made = {}
    chosen: dict[str, Any] | None = record.summary.get("alpha")
    if chosen is not None:
        made[f"alpha, by {chosen['rule']}"] = spread(record)
        if chosen["expected_gain"] is not None:
            made["expected gain of loss"] = f"{chosen['expected_gain']:.4g}"
    found: dict[str, Any] | None = record.summary.get("taking_part")
    if found is not None:
        for kind in ("personal", "global"):
            made[f"{found['part']} loss, {kind}"] = _against_alone(found, kind)
    return made


def spread(record: Record) -> str:
    """The alphas of the clients."""
    alpha = np.percentile(record.clients["alpha"], (0, 50, 100))
    low, middle, high = (f"{value:.2g}" for value in alpha)
    return f"{low} to {high}, median {middle}"


def _against_alone(found: dict[str, Any], kind: str) -> str:
    one = found[kind]
    side = "above" if one["gain"] < 0 else "below"
    words = f"{abs(one['gain']):.4g} {side} alone; "
    words += f"{one['hurt']} of {found['clients']} clients worse off"
    return words + by(one)


def taking_part(record: Record) -> str | None:
    """One sentence for a run with a test part: what taking part gained, for how many of the
    clients, and what it cost."""
    found = record.summary.get("taking_part")
    if found is None or found["part"] != "test" or not record.summary["rounds"]:
        return None
    clients, metrics, metric = record.clients, record.metrics, record.summary["metric"]
    before, after = (np.nanmean(clients[f"test_loss_{kind}"]) for kind in ("local", "personal"))
    mine = found["personal"]
    megabytes = (metrics["bits_up"][-1] + metrics["bits_down"][-1]) / 8e6
    rounds = record.summary["rounds"] + record.summary["warmup_rounds"]
    scores = ""
    if metric == "accuracy":
        alone, home = (100 * np.nanmean(clients[f"test_{kind}"]) for kind in ("local", "personal"))
        scores = f" (accuracy {alone:.1f} to {home:.1f} %)"
    cost = f"at the cost of {rounds} rounds and {megabytes:.3g} megabytes"
    if not after < before:
        return f"Taking part did not lower the mean test loss of {before:.4g}, {cost}."
    return (
        f"Taking part lowered the mean test loss from {before:.4g} to {after:.4g}{scores}, for "
        f"{mine['gaining']} of {found['clients']} clients ({mine['hurt']} are worse off than "
        f"alone), {cost}."
    )


def chosen(records: Sequence[Record]) -> Table | None:
    """The runs whose alpha the clients chose: what they expected of it, and what came of it."""
    found = [one for one in families(records) if one.records[0].summary.get("alpha") is not None]

    def cells(family: Family) -> tuple[str, ...]:
        record = family.records[0]
        made, alone = record.summary["alpha"], record.summary.get("taking_part")
        came = "" if alone is None else f"{alone['personal']['gain']:.4g}"
        return made["rule"], spread(record), f"{made['expected_gain']:.4g}", came

    header = ("rule", "chosen", "expected", "found")
    return _by_family("Alpha, as the clients chose it, and the loss it saves", header, found, cells)


def worse_off(records: Sequence[Record]) -> Table | None:
    """Of the runs with a held-out part and models of the clients' own: how many of the clients are
    worse off than alone, and by how much those are."""
    made = families(records)
    found = [one for one in made if one.records[0].summary.get("taking_part") is not None]

    def cells(family: Family) -> tuple[str, ...]:
        alone = family.records[0].summary["taking_part"]
        return tuple(
            f"{one['hurt']} of {alone['clients']} ({100 * one['share_hurt']:.0f} %){by(one)}"
            for one in (alone["personal"], alone["global"])
        )

    title = "Clients with more held-out loss than alone"
    return _by_family(title, ("personal", "global"), found, cells)


def by(one: dict[str, Any]) -> str:
    """By how much those who are hurt are, on average."""
    return f", by {one['harm']:.3g}" if one["hurt"] else ""


def _by_family(
    title: str,
    header: tuple[str, ...],
    found: Sequence[Family],
    cells: Callable[[Family], tuple[str, ...]],
) -> Table | None:
    """A row for each, with its data where there are several."""
    several = len({family.data for family in found}) > 1
    names = ("data", "method", "alpha") if several else ("method", "alpha")
    rows = []
    for family in found:
        who = (Path(family.data).name, family.method, alpha_label(family.alpha))
        rows.append((*who[-len(names) :], *cells(family)))
    return Table(title, (*names, *header), rows) if rows else None
