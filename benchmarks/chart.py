"""Results as one picture: how long a client-step takes everybody, and how we grow."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter

from tables import best

OURS, THEIRS, MEMORY = "#21618c", "#aab7b8", "#b9770e"


def draw(results: dict[str, Any], file: Path) -> None:
    """A bar for each peer above, a line for each size below."""
    workloads = [found for found in results.values() if "peers" in found]
    growth = results.get("growth", {})
    columns = max(len(workloads), len(growth))
    if not columns:
        return
    rows = bool(workloads) + bool(growth)
    figure = Figure(figsize=(3.6 * columns, 3.0 * rows), layout="constrained")
    parts = iter(figure.subfigures(rows, 1, squeeze=False)[:, 0])
    if workloads:
        for axes, found in zip(
            next(parts).subplots(1, len(workloads), squeeze=False)[0], workloads, strict=True
        ):
            bars(axes, found)
    if growth:
        for axes, (name, grown) in zip(
            next(parts).subplots(1, len(growth), squeeze=False)[0], growth.items(), strict=True
        ):
            lines(axes, name, grown)
    figure.savefig(file, dpi=130)


def bars(axes: Any, found: dict[str, Any]) -> None:
    recipe = found["recipe"]
    steps = recipe["cohort"] * recipe["steps"]
    peers = sorted(found["peers"].items(), key=lambda item: -best(item[1]))
    values = [1e3 * best(peer) / steps for _, peer in peers]
    colours = [OURS if "ours" in peer["label"] else THEIRS for _, peer in peers]
    drawn = axes.barh([peer["label"] for _, peer in peers], values, color=colours)
    axes.bar_label(drawn, fmt="%.3g", padding=3, fontsize=8)
    axes.set_xscale("log")
    axes.set_xlim(min(values) / 2, max(values) * 4)
    axes.xaxis.set_minor_formatter(NullFormatter())  # the bars say their values
    axes.set_title(found["title"], fontsize=10)
    axes.set_xlabel("milliseconds a client-step")
    axes.tick_params(labelsize=8)
    axes.spines[["top", "right"]].set_visible(False)


def lines(axes: Any, name: str, grown: dict[str, Any]) -> None:
    """Measured points and the fitted lines: seconds on the left, memory on the right."""
    memory = axes.twinx()
    x = np.array([point[name] for point in grown["points"]])
    for side, key, factor, mark, colour, label in (
        (axes, "seconds", 1e3, "o", OURS, "milliseconds a round"),
        (memory, "resident", 1e-9, "s", MEMORY, "resident, GB"),
    ):
        line = grown[key]
        side.plot(x, factor * (line["start"] + line["slope"] * x), color=colour, linewidth=1)
        side.plot(x, [factor * point[key] for point in grown["points"]], mark, color=colour)
        side.set_ylim(0, 1.1 * factor * max(point[key] for point in grown["points"]))
        side.set_ylabel(label, color=colour, fontsize=8)
        side.tick_params(labelsize=8)
    axes.set_xlabel(name)
