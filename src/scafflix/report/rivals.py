"""Rivals in personalization: how the clients fare with each, and at what cost."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from scafflix.core.types import Floats
from scafflix.record import Record
from scafflix.report import accuracy, reaching
from scafflix.report.figures import Picture
from scafflix.report.table import Table
from scafflix.runs.reproduction import Line, Panel, Setting, in_words


def tables(panel: Panel) -> list[Table]:
    """How clients fare, and of networks what it took to come so far."""
    found = reaching.table(panel)
    return [table(panel)] if found is None else [table(panel), found]


def table(panel: Panel) -> Table:
    """What clients take home, on test data; means over divisions or seeds, ± their standard error.

    The loss is a mean over clients. Accuracies are over all examples, then the mean over clients,
    their 10th percentile, the mean of their worst tenth, the worst; a client is hurt if its loss is
    larger than alone, or, where nobody has a model alone, than with the first line's.
    """
    alone = _alone(panel)
    rows = [_row(panel, line) for line in ([] if alone is None else [alone]) + panel.lines]
    accuracies = ("examples", "mean", "p10", "worst tenth", "worst")
    title = f"{panel.title}: test loss and accuracy in % over clients"
    return Table(title, ("", "chosen", "loss", *accuracies, "hurt", "rounds", "MB"), rows)


def _alone(panel: Panel) -> Line | None:
    """The models that clients trained without anybody else, if a line has them."""
    for line in panel.lines:
        known = [r for r in line.records if "test_loss_local" in r.clients]
        if known and not any(record.summary.get("tuned") for record in known):
            return Line("alone", [], known, "local")
    return None


def _base(panel: Panel) -> Line:
    """What clients are compared with."""
    return _alone(panel) or panel.lines[0]


def _hurt(panel: Panel, line: Line) -> float:
    """The share of the clients that have more loss than they would otherwise."""
    base, shares = _base(panel), []
    for record, other in zip(line.records, base.records, strict=False):
        gap = record.clients[_loss(line)] - other.clients[_loss(base)]
        shares.append(np.mean(gap[np.isfinite(gap)] > 0))
    return float(np.mean(shares))


def _loss(line: Line) -> str:
    return f"test_loss_{line.kind}"


def _row(panel: Panel, line: Line) -> tuple[str, ...]:
    records, kind = line.records, line.kind
    scores = [100 * known(record, f"test_{kind}") for record in records]
    losses = np.array([known(record, f"test_loss_{kind}").mean() for record in records])
    examples = [100 * _over_examples(record, f"test_{kind}") for record in records]
    hurt, alone = 100 * _hurt(panel, line), not line.chosen
    rounds = np.mean([r.summary["rounds"] + r.summary["warmup_rounds"] for r in records])
    sent = np.mean([(r.metrics["bits_up"][-1] + r.metrics["bits_down"][-1]) / 8e6 for r in records])
    return (
        line.label,
        "" if alone else chosen(line),
        with_error(losses, 4),
        with_error(np.array(examples), 1),
        with_error(np.array([one.mean() for one in scores]), 1),
        with_error(np.array([np.percentile(one, 10) for one in scores]), 1),
        with_error(np.array([worst_tenth(one) for one in scores]), 1),
        f"{np.mean([one.min() for one in scores]):.1f}",
        "" if alone or line is _base(panel) else f"{hurt:.0f} %",
        "0" if alone else f"{rounds:g}",
        "0" if alone else f"{sent:.3g}" if sent < 1000 else f"{sent:,.0f}",
    )


def chosen(line: Line) -> str:
    """The settings that validation data chose, the most frequent one with how often."""
    words = [_brief(setting) for setting in line.chosen]
    most = max(dict.fromkeys(words), key=words.count)
    often = f" ({words.count(most)} of {len(words)})" if len(set(words)) > 1 else ""
    return f"{most}{often}"


def _brief(setting: Setting) -> str:
    """Without what is left to theory and the name of the method.

    >>> _brief({"method": "ditto:pull=0.1", "stepsize": "auto"})
    'pull=0.1'
    """
    options = str(setting.get("method", "")).partition(":")[2]
    rest = {name: value for name, value in setting.items() if name != "method" and value != "auto"}
    return ", ".join(filter(None, [options, in_words(rest)]))


def known(record: Record, column: str) -> Floats:
    """A column of the table of clients, without those that have nothing there."""
    values = record.clients[column]
    return values[np.isfinite(values)]


def _over_examples(record: Record, column: str) -> float:
    """The mean in which every client counts as often as it has test examples."""
    scores, many = record.clients[column], record.clients["test_examples"]
    seen = np.isfinite(scores)
    return float(np.average(scores[seen], weights=many[seen]))


def worst_tenth(scores: Floats) -> float:
    """The mean of the least tenth, at least of one.

    >>> worst_tenth(np.arange(20.0))
    0.5
    """
    return float(np.sort(scores)[: -(-len(scores) // 10)].mean())


def with_error(values: Floats, digits: int) -> str:
    """The mean, and its standard error where there are several."""
    error = f" ± {_error(values):.{digits}f}" if len(values) > 1 else ""
    return f"{values.mean():.{digits}f}{error}"


def _error(values: Floats) -> float:
    return float(values.std(ddof=1) / np.sqrt(len(values))) if len(values) > 1 else 0.0


def figure(panels: Sequence[Panel]) -> Picture:
    """The mean test loss of what clients take home, a dot a method; the line is alone."""
    height = 0.8 + 0.28 * max(len(panel.lines) for panel in panels)
    made = Picture(figsize=(4.6 * len(panels), height), layout="constrained")
    grid = made.subplots(1, len(panels), squeeze=False)[0]
    for axes, panel in zip(grid, panels, strict=True):
        for place, line in enumerate(reversed(panel.lines)):
            losses = np.array([known(r, _loss(line)).mean() for r in line.records])
            ours = line.label.startswith("Scafflix")
            colour = "tab:blue" if ours else "0.35"
            axes.errorbar(losses.mean(), place, xerr=_error(losses), fmt="o", color=colour)
        base = _base(panel)
        dashed = np.mean([known(r, _loss(base)).mean() for r in base.records])
        axes.axvline(float(dashed), color="0.6", lw=1, ls="--")
        axes.set_yticks(range(len(panel.lines)), [line.label for line in reversed(panel.lines)])
        axes.set_title(panel.title)
        axes.set_xlabel(f"mean test loss over clients\n(dashed: {base.label})")
        axes.locator_params(axis="x", nbins=5)
        axes.grid(visible=True, axis="x", alpha=0.3)
    return made


def courses(panels: Sequence[Panel]) -> Picture | None:
    """Loss and accuracy against rounds of what is looked at under way; None where nothing is."""
    seen = [panel._replace(lines=reaching.followed(panel)) for panel in panels]
    seen = [panel for panel in seen if panel.lines]
    if not seen:
        return None
    made = Picture(figsize=(10, 3.8 * len(seen)), layout="constrained")
    for row, panel in zip(made.subplots(len(seen), 2, squeeze=False), seen, strict=True):
        for axes, name in zip(row, ("loss", "personal"), strict=True):
            accuracy.draw(axes, panel, name)
    return made


def write(panels: Sequence[Panel], folder: Path, name: str) -> None:
    """The tables in Markdown; what was tried and chosen, in JSON."""
    text = "\n\n".join(one.markdown for panel in panels for one in tables(panel))
    (folder / f"{name}.md").write_text(text + "\n")
    runs: list[dict[str, Any]] = [
        {
            "panel": panel.title,
            "line": line.label,
            "chosen": line.chosen,
            "tried": [(one.setting, one.cell.loss) for one in panel.tried[line.label]],
            "config": dict(line.records[0].config),
        }
        for panel in panels
        for line in panel.lines
    ]
    (folder / f"{name}_runs.json").write_text(json.dumps(runs, indent=1) + "\n")
