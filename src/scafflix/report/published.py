"""Published comparisons made again: ours beside their figures, in a table, a picture and a CSV."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from scafflix.core.types import Floats
from scafflix.report.figures import Picture
from scafflix.report.table import Table
from scafflix.runs.published import BUDGET, END, Line, Outcome, Study

ALONE, THEIRS = "alone", "published"


def tables(study: Study) -> list[Table]:
    """Ours beside theirs: means over clients in percent, ± the standard deviation over starts or
    divisions. And ours beside each client's own model: the mean of the differences of a division ±
    its standard error, the loss, and how many clients have a larger loss than alone."""
    alone = _line(study, ALONE).trained(END)
    divisions = f"{len(alone)} divisions" if len(alone) > 1 else "1 division"
    short = any(line.trained(BUDGET) for line in study.lines)

    def ours(line: Line) -> list[str]:
        end = line.trained(END)
        first = [_percent(line.trained(BUDGET)), _percent(end[:1])] if short else []
        return [*first, _percent(end)]

    beside = [(line.label, _published(line), *ours(line)) for line in study.lines]
    trainings = (BUDGET, END) if short else ()
    ended = [(line.label, line.trained(END)) for line in study.lines if line.trained(END)]
    return [
        Table(
            f"{study.title}: {study.metric} in %",
            ("", THEIRS, *trainings, divisions),
            beside,
        ),
        Table(
            f"{study.title}: {divisions}, {END}",
            ("", "against alone", "loss", "worse off"),
            [(label, *_against(ours, alone)) for label, ours in ended],
        ),
    ]


def _line(study: Study, label: str) -> Line:
    return next(line for line in study.lines if line.label == label)


def _published(line: Line) -> str:
    words = " to ".join(f"{number:.1f}" for number in line.published)
    return words if line.spread is None else f"{words} ± {line.spread:.1f}"


def _means(outcomes: Sequence[Outcome]) -> Floats:
    """Over the clients that can be scored, in percent."""
    return np.array([100 * np.nanmean(np.array(one.score, float)) for one in outcomes])


def _percent(outcomes: Sequence[Outcome]) -> str:
    if not outcomes:
        return ""
    means = _means(outcomes)
    spread = f" ± {means.std(ddof=1):.1f}" if len(means) > 1 else ""
    return f"{means.mean():.1f}{spread}"


def _against(ours: Sequence[Outcome], alone: Sequence[Outcome]) -> tuple[str, str, str]:
    losses = np.array([one.loss for one in ours], float)
    loss = f"{np.nanmean(losses):.4f}"
    if ours[0].line == ALONE:
        return "", loss, ""
    apart = _means(ours) - _means(alone)
    error = f" ± {apart.std(ddof=1) / np.sqrt(len(apart)):.1f}" if len(apart) > 1 else ""
    worse = (losses > np.array([one.loss for one in alone], float)).mean()
    difference = round(float(apart.mean()), 1) + 0.0  # no minus before a zero
    return f"{difference:+.1f}{error}", loss, f"{100 * worse:.0f} %"


def figure(study: Study) -> Picture:
    """A dot a line: theirs, ours trained as theirs, ours trained to the end."""
    made = Picture(figsize=(7.2, 1.2 + 0.3 * len(study.lines)), layout="constrained")
    axes = made.subplots()
    kinds = {BUDGET: ("ours, trained as published", "0.45"), END: ("ours, to the end", "tab:blue")}
    for place, line in enumerate(reversed(study.lines)):
        if line.published:
            low, high = line.published[0], line.published[-1]
            reach = line.spread or (high - low) / 2
            axes.errorbar(
                (low + high) / 2, place + 0.2, xerr=reach or None, fmt="D", ms=5, color="tab:red",
                label=THEIRS,
            )  # fmt: skip
        for height, (training, (label, colour)) in zip((0.0, -0.2), kinds.items(), strict=True):
            if outcomes := line.trained(training):
                means = _means(outcomes)
                spread = means.std(ddof=1) if len(means) > 1 else None
                axes.errorbar(
                    means.mean(), place + height, xerr=spread, fmt="o", ms=5, color=colour,
                    label=label,
                )  # fmt: skip
    axes.axvline(_means(_line(study, ALONE).trained(END)).mean(), color="0.6", lw=1, ls="--")
    axes.set_yticks(range(len(study.lines)), [line.label for line in reversed(study.lines)])
    axes.set_title(study.title)
    axes.set_xlabel(f"{study.metric} in %, mean over clients (dashed: ours alone)")
    axes.grid(visible=True, axis="x", alpha=0.3)
    named = dict(zip(*reversed(axes.get_legend_handles_labels()), strict=True))
    order = [one for one in (THEIRS, *(label for label, _ in kinds.values())) if one in named]
    handles = [named[one] for one in order]
    made.legend(handles, order, loc="outside lower center", ncols=3, frameon=False)
    return made


def write_csv(study: Study, path: Path) -> None:
    """The score and the loss of every client with every line."""
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["line", "training", "division", "start", "client", "score", "loss"])
        for one in (outcome for line in study.lines for outcome in line.ours):
            about = (one.line, one.training, one.division, one.start)
            for client, *values in zip(study.clients, one.score, one.loss, strict=True):
                writer.writerow([*about, client, *values])
