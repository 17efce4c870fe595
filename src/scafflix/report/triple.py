"""Personalization, local training and compression together: rounds and kilobytes to a gap."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import matplotlib
import numpy as np

from scafflix.record import Record
from scafflix.report.curves import Family, Floats, alpha_label, families
from scafflix.report.figures import LABELS, Picture
from scafflix.report.table import Table
from scafflix.report.tables import worst_ratio


def tables(records: Sequence[Record], target: float) -> list[Table]:
    """For each data set: rounds and kilobytes up of a client until the gap is at most the target,
    medians over seeds, at each alpha; and the worst Psi over its bound."""
    found = families(records)
    alphas = list(dict.fromkeys(family.alpha for family in found))

    def cell(family: Family) -> str:
        rounds = family.rounds_to(target)
        if rounds is None:
            return f"> {family.rounds[-1]}"
        return f"{rounds:g} / {np.interp(rounds, family.rounds, _sent(family)):.1f}"

    def row(data: str, method: str) -> tuple[str, ...]:
        mine = {one.alpha: one for one in found if (one.data, _name(one)) == (data, method)}
        ratio = worst_ratio([record for one in mine.values() for record in one.records])
        return method, *(cell(mine[alpha]) for alpha in alphas), ratio

    return [
        Table(
            f"{Path(data).name}: rounds / kilobytes up of a client until the gap is {target:g}",
            ("method", *(f"alpha {alpha_label(alpha)}" for alpha in alphas), "Psi/bound"),
            [row(data, name) for name in dict.fromkeys(_name(f) for f in found if f.data == data)],
        )
        for data in dict.fromkeys(family.data for family in found)
    ]


def figure(records: Sequence[Record], target: float) -> Picture:
    """The gap against kilobytes up: a column a data set, a row an alpha, a colour a method."""
    found = families(records)
    panels = list(dict.fromkeys(family.data for family in found))
    alphas = list(dict.fromkeys(family.alpha for family in found))
    names = list(dict.fromkeys(_name(family) for family in found))
    colours = dict(zip(names, matplotlib.colormaps["tab10"](np.arange(len(names))), strict=True))
    shape = len(alphas), len(panels)
    made = Picture(figsize=(0.6 + 4.2 * shape[1], 1.0 + 2.9 * shape[0]), layout="constrained")
    grid = made.subplots(*shape, squeeze=False, sharex="col", sharey=True)
    for family in found:
        axes = grid[alphas.index(family.alpha), panels.index(family.data)]
        gap, name = family.band("objective_gap")[0], _name(family)
        label = name if axes is grid[0, 0] else None
        seen = np.isfinite(gap) & (family.rounds > 0)
        axes.loglog(_sent(family)[seen], gap[seen], color=colours[name], lw=1.6, label=label)
    for axes in grid.flat:
        axes.axhline(target, color="0.6", lw=0.8)
        axes.set_ylim(target / 100, None)
        axes.grid(visible=True, alpha=0.3)
    for axes, panel in zip(grid[0], panels, strict=True):
        axes.set_title(Path(panel).name)
    for axes in grid[-1]:
        axes.set_xlabel("kilobytes up of a client")
    for axes, alpha in zip(grid[:, 0], alphas, strict=True):
        axes.set_ylabel(f"$\\alpha$ = {alpha_label(alpha)}\n{LABELS['objective_gap']}")
    made.legend(loc="outside lower center", ncols=5, frameon=False)
    return made


def _name(family: Family) -> str:
    """The method, and how many clients it asks in a round if not all of them."""
    config, summary = family.records[0].config, family.records[0].summary
    some = f", {config['cohort']} of {summary['n_clients']}" if config.get("cohort") else ""
    return f"{config['method'].replace('compressor=', '')}{some}"


def _sent(family: Family) -> Floats:
    """Kilobytes that a client has sent after each round, on average over clients and seeds."""
    clients = family.records[0].summary["n_clients"]
    return np.asarray(family.metric("bits_up").mean(axis=0) / (8e3 * clients))
