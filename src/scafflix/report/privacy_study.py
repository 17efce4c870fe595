"""Accuracy against epsilon: a picture, a table and a CSV."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from scafflix.core.types import Floats
from scafflix.report.figures import Picture
from scafflix.report.table import Table
from scafflix.runs.privacy_study import KINDS, Panel

COLOURS = ("tab:blue", "tab:orange", "tab:green", "0.5")
NONE = 3  # how far to the right of the largest epsilon that of no noise stands


def _epsilon(value: float) -> str:
    return "none" if np.isinf(value) else f"{value:g}"


def _published(panel: Panel, epsilon: float) -> str:
    """What is published for an epsilon, in percent."""
    given = 0.0 if np.isinf(epsilon) else epsilon
    found = [one for one in panel.published if one.epsilon == given]
    if not found:
        return ""
    delta = "" if found[0].delta is None else f" (delta {found[0].delta:g})"
    return f"{100 * found[0].accuracy:.1f}{delta}"


def tables(panels: Sequence[Panel]) -> list[Table]:
    """Means over clients in percent, and over divisions and seeds, ± the standard deviation over
    divisions."""
    return [_table(panel) for panel in panels]


def _table(panel: Panel) -> Table:
    def cells(scores: Floats) -> list[str]:
        means = 100 * scores.mean(axis=-1)  # [kinds, divisions]
        spread = means.std(axis=1, ddof=1) if means.shape[1] > 1 else np.zeros(len(means))
        return [f"{m:.1f} ± {s:.1f}" for m, s in zip(means.mean(axis=1), spread, strict=True)]

    beside = ("FedAvg, published",) if panel.published else ()
    rows = []
    for epsilon, scores in zip(panel.epsilons, panel.scores, strict=True):
        theirs = [_published(panel, epsilon)] if beside else []
        rows.append((_epsilon(epsilon), *cells(scores), *theirs))
    title = f"{panel.title}: test accuracy in %, delta {panel.delta:g}"
    return Table(title, ("epsilon", *KINDS, *beside), rows)


def figure(panels: Sequence[Panel]) -> Picture:
    """A curve for each kind of model."""
    made = Picture(figsize=(5.2 * len(panels), 4.2), layout="constrained")
    places = made.subplots(1, len(panels), squeeze=False)[0]
    for axes, panel in zip(places, panels, strict=True):
        finite = [one for one in panel.epsilons if np.isfinite(one)]
        right = NONE * max(finite)
        x = [*finite, right]
        for kind, name in enumerate(KINDS):
            means = 100 * panel.scores[:, kind].mean(axis=-1)  # [epsilons, divisions]
            reach = means.std(axis=1, ddof=1) if means.shape[1] > 1 else None
            style = "--" if name == "alone" else "-"
            axes.errorbar(
                x, means.mean(axis=1), yerr=reach, label=name, color=COLOURS[kind], ls=style,
                marker="o", ms=4, capsize=2,
            )  # fmt: skip
        if panel.published:
            at = [right if one.epsilon == 0 else one.epsilon for one in panel.published]
            theirs = [100 * one.accuracy for one in panel.published]
            axes.plot(at, theirs, "D", color="tab:red", label="FedAvg, published")
        axes.set_xscale("log")
        axes.set_xticks(x, [*(f"{one:g}" for one in finite), "none"])
        axes.minorticks_off()
        axes.set_title(panel.title)
        axes.set_xlabel("epsilon, for every example")
        axes.grid(visible=True, alpha=0.3)
    places[0].set_ylabel("test accuracy in %, mean over clients")
    found = dict(zip(*reversed(places[0].get_legend_handles_labels()), strict=True))
    made.legend(
        list(found.values()), list(found), loc="outside lower center", ncols=5, frameon=False
    )
    return made


def write_csv(panels: Sequence[Panel], path: Path) -> None:
    """Every run."""
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["data", "epsilon", "delta", "models", "division", "seed", "accuracy"])
        for panel in panels:
            for place, score in np.ndenumerate(panel.scores):
                epsilon, kind, division, seed = place
                about = (panel.title, _epsilon(panel.epsilons[epsilon]), panel.delta, KINDS[kind])
                writer.writerow([*about, division, seed, score])
