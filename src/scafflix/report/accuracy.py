"""Figures and tables of networks: how good the clients' models are against rounds."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from numpy.typing import NDArray

from scafflix.record import Record
from scafflix.report.curves import alpha_label, families
from scafflix.report.figures import Picture
from scafflix.report.table import Table
from scafflix.runs.reproduction import Line, Panel


def curve(record: Record, name: str) -> tuple[NDArray[Any], NDArray[Any]]:
    """Communications, those of a warm-up included, and a metric where it was measured."""
    part = record.config["part"]
    values = record.metrics[f"{part}_{name}"]
    known = np.isfinite(values)
    return record.metrics["round"][known] + record.summary["warmup_rounds"], values[known]


def panel(title: str, records: Sequence[Record]) -> Panel:
    """A comparison as one picture."""
    lines = [
        Line(
            f"{family.records[0].config['method']}, alpha = {alpha_label(family.alpha)}",
            [{"stepsize": family.records[0].config.get("stepsize", "auto")}],
            list(family.records),
        )
        for family in families(records)
    ]
    return Panel(title, lines, {})


def figure(panels: Sequence[Panel], name: str = "personal") -> Picture:
    """Loss or accuracy of the personalized models against rounds: means over seeds, bands from the
    least to the largest."""
    columns = min(2, len(panels))
    rows = -(-len(panels) // columns)
    made = Picture(figsize=(0.4 + 5.2 * columns, 0.4 + 3.8 * rows), layout="constrained")
    grid = made.subplots(rows, columns, squeeze=False)
    for axes in grid.flat[len(panels) :]:
        axes.set_visible(False)
    for axes, panel in zip(grid.flat, panels, strict=False):
        draw(axes, panel, name)
    return made


def draw(axes: Axes, panel: Panel, name: str) -> None:
    """A curve for each line: the test loss, or an accuracy."""
    unit = 1 if name == "loss" else 100
    colours = matplotlib.colormaps["viridis"](np.linspace(0.0, 0.88, len(panel.lines)))
    for line, colour in zip(panel.lines, colours, strict=True):
        curves = [curve(record, name) for record in line.records]
        length = min(len(values) for _, values in curves)
        rounds = curves[0][0][:length]
        values = unit * np.array([values[:length] for _, values in curves])
        axes.plot(rounds, values.mean(axis=0), color=colour, label=line.label, marker=".", lw=1.6)
        low, high = values.min(axis=0), values.max(axis=0)
        axes.fill_between(rounds, low, high, color=colour, alpha=0.15, lw=0)
    part = panel.lines[0].records[0].config["part"]
    axes.set_title(panel.title)
    axes.set_xlabel("communication rounds")
    axes.set_ylabel(f"{part} loss" if name == "loss" else f"{part} accuracy, %")
    axes.grid(visible=True, alpha=0.3)
    axes.legend(fontsize="small", frameon=False)
    _zoom(axes)


def _zoom(axes: Axes) -> None:
    """Leave out of the heights what only the first tenth of the rounds has."""
    curves = [(np.asarray(line.get_xdata()), np.asarray(line.get_ydata())) for line in axes.lines]
    late = np.concatenate([values[rounds >= rounds[-1] / 10] for rounds, values in curves])
    if (margin := 0.05 * np.ptp(late)) > 0:
        axes.set_ylim(late.min() - margin, late.max() + margin)


COLUMNS = {
    "local": ("local", "examples"),
    "global": ("global", "examples"),
    "personal": ("personal", "examples"),
    "over clients": ("personal", "clients"),
    "std": ("personal", "std"),
    "p10": ("personal", "p10"),
    "worst": ("personal", "worst"),
}
BRIEF = ("local", "global", "personal", "p10")  # what a terminal has room for


def table(panel: Panel, columns: Sequence[str] = tuple(COLUMNS)) -> Table:
    """The end of every line in percent, averaged over seeds; personal with the spread over them.

    Local, global and personal are means over all examples, the rest is over clients; p10 is the
    10th percentile.
    """
    part = panel.lines[0].records[0].config["part"]

    def word(line: Line, column: str) -> str:
        kind, which = COLUMNS[column]
        found = [record.summary["scores"][part].get(kind, {}) for record in line.records]
        values = 100 * np.array([one.get(which, np.nan) for one in found], float)
        spread = f" ± {values.std():.1f}" if column == "personal" and len(values) > 1 else ""
        return "" if np.isnan(values).all() else f"{values.mean():.1f}{spread}"

    rows = [
        (with_fate(line), gamma(line), *(word(line, column) for column in columns))
        for line in panel.lines
    ]
    seeds = len(panel.lines[0].records)
    title = f"{panel.title}: {part} accuracy in %, {seeds} seed{'s' if seeds > 1 else ''}"
    return Table(title, ("", "gamma", *columns), rows)


def gamma(line: Line) -> str:
    """The stepsize that validation data chose."""
    return f"{line.chosen[0]['stepsize']:g}"


def with_fate(line: Line) -> str:
    """The label, with the first round in which a run of the line diverged."""
    ends = [record.summary["diverged"] for record in line.records]
    rounds = [end["round"] for end in ends if end is not None]
    return f"{line.label} (diverged: round {min(rounds)})" if rounds else line.label


def write_csv(panels: Sequence[Panel], path: Path) -> None:
    """Every measured point of every curve."""
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        names = [n for n in panels[0].lines[0].records[0].metrics if n != "round"]
        writer.writerow(["panel", "line", "seed", "round", *names])
        for panel in panels:
            for line in panel.lines:
                for record in line.records:
                    part = record.config["part"]
                    known = np.isfinite(record.metrics[f"{part}_personal"])
                    for number in np.flatnonzero(known):
                        values = [record.metrics[n][number] for n in names]
                        start = record.summary["warmup_rounds"]
                        place = int(record.metrics["round"][number]) + start
                        writer.writerow(
                            [panel.title, line.label, record.config["seed"], place, *values]
                        )


def write_tables(
    panels: Sequence[Panel], folder: Path, name: str, table: Callable[[Panel], Table] = table
) -> None:
    """The tables in Markdown, and the grids of stepsizes with the configurations in JSON."""
    made = [table(panel).markdown for panel in panels]
    (folder / f"{name}.md").write_text("\n\n".join(made) + "\n")
    runs = [
        {
            "panel": panel.title,
            "line": line.label,
            "chosen": line.chosen,
            "tried": [(one.setting, _finite(one.cell.score)) for one in panel.tried[line.label]],
            "config": dict(line.records[0].config),
            "seconds": [record.summary["seconds"] for record in line.records],
            "scores": [record.summary["scores"] for record in line.records],
            "local_optima": line.records[0].summary["local_optima"],
        }
        for panel in panels
        for line in panel.lines
    ]
    (folder / f"{name}_runs.json").write_text(json.dumps(runs, indent=1) + "\n")


def _finite(value: float) -> float | None:
    return value if np.isfinite(value) else None
