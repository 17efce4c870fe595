"""Convergence figures, as the paper draws them: one colour an alpha, one line style a method."""

from __future__ import annotations

import io
import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from scafflix.record import Record
from scafflix.report.curves import Family, alpha_label, families

matplotlib.rcParams["svg.hashsalt"] = "scafflix"  # the same figure is the same file
LABELS = {
    "objective_gap": "objective gap  $\\tilde f(x^k) - \\tilde f^\\star$",
    "grad_norm_sq": "$\\|\\nabla \\tilde f(x^k)\\|^2$",
}
STYLES = {"scafflix": "solid", "gd": "dashed", "nesterov": "dashdot", "fedavg": "dotted"}
OTHER_STYLES = ((0, (6, 1, 1, 1, 1, 1)), (0, (1, 4)), (0, (8, 3)), (0, (3, 5, 1, 5)))


class Picture(Figure):
    """A figure that a notebook shows by itself, whatever backend it has."""

    def _repr_png_(self) -> bytes:
        drawing = io.BytesIO()
        self.savefig(drawing, format="png", dpi=100)
        return drawing.getvalue()


def convergence(records: Sequence[Record], methods: Sequence[str] | None = None) -> Picture:
    """Objective gap and squared gradient norm: a column a data set, or for a single one side by
    side. Lines are geometric means over seeds, bands reach from the least to the largest."""
    found = [family for family in families(records) if methods is None or family.method in methods]
    panels = list(dict.fromkeys(family.data for family in found))
    alphas = list(dict.fromkeys(family.alpha for family in found))
    styles = _styles(list(dict.fromkeys(family.method for family in found)))
    colours = dict(
        zip(
            alphas,
            matplotlib.colormaps["viridis"](np.linspace(0.0, 0.88, len(alphas))),
            strict=True,
        )
    )
    single = len(panels) == 1
    shape = (1, len(LABELS)) if single else (len(LABELS), len(panels))
    width, height = 0.8 + 4.4 * shape[1], 1.1 + 3.1 * shape[0]
    figure = Picture(figsize=(width, height))
    grid = figure.subplots(*shape, squeeze=False, sharex="col")
    # margins in inches: an automatic layout would draw everything twice
    figure.subplots_adjust(
        left=0.85 / width,
        right=1 - 0.15 / width,
        bottom=0.95 / height,
        top=1 - 0.35 / height,
        wspace=0.22,
        hspace=0.08,
    )
    for column, panel in enumerate(panels):
        for row, (metric, label) in enumerate(LABELS.items()):
            axes = grid[0, row] if single else grid[row, column]
            for family in found:
                if family.data == panel:
                    line = styles[family.method], colours[family.alpha]
                    _draw(axes, family, metric, *line)
            if single or row == len(LABELS) - 1:
                axes.set_xlabel("communication rounds $k$")
            if single or row == 0:
                axes.set_title(Path(panel).name)
            if single or column == 0:
                axes.set_ylabel(label)
    handles = [Line2D([], [], color="0.3", linestyle=styles[name], label=name) for name in styles]
    handles += [
        Line2D([], [], color=colour, linewidth=3, label=f"$\\alpha$ = {alpha_label(alpha)}")
        for alpha, colour in colours.items()
    ]
    columns = min(len(handles), 4 * shape[1])
    figure.legend(handles=handles, loc="lower center", ncols=columns, frameon=False)
    return figure


def _styles(methods: list[str]) -> dict[str, Any]:
    """The paper's line styles for the paper's methods, the next free one for any other."""
    others = itertools.cycle(OTHER_STYLES)
    return {name: STYLES[name] if name in STYLES else next(others) for name in methods}


def _draw(axes: Axes, family: Family, metric: str, style: Any, colour: Any) -> None:
    mean, low, high = family.band(metric)
    rounds = family.rounds
    axes.semilogy(rounds, mean, linewidth=1.6, linestyle=style, color=colour)
    if (low < high).any():
        axes.fill_between(rounds, low, high, color=colour, alpha=0.15, lw=0)
    axes.grid(visible=True, which="major", alpha=0.3)
    axes.minorticks_off()
    axes.set_xlim(0, rounds[-1] or 1)


def save(figure: Figure, folder: Path, name: str) -> None:
    """For the eye and for print."""
    figure.savefig(folder / f"{name}.png", dpi=150)
    figure.savefig(folder / f"{name}.pdf", metadata={"CreationDate": None})
