"""Tables for papers: of one run, and of several with the spread over seeds."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from scafflix.core.arguments import instance, real_number, shown
from scafflix.core.errors import ScafflixError
from scafflix.record import Columns, Record
from scafflix.report.booktabs import NOTHING, UNKNOWN, Cell, escaped, in_bold, power, table
from scafflix.report.curves import Family, Floats, alpha_label, families
from scafflix.report.recommendation import ends
from scafflix.report.tables import KINDS, scored_part

WORDS = {"local": "local", "global": "global", "personal": "personalized"}


class Measure(NamedTuple):
    """What a record says of models: on which part, in which metric."""

    part: str
    metric: str

    @property
    def percent(self) -> bool:
        return self.metric == "accuracy"

    def of(self, clients: Columns, kind: str) -> Floats | None:
        """What each client's model of this kind scores, where it has examples."""
        name = f"{self.part}_loss_{kind}" if self.metric == "loss" else f"{self.part}_{kind}"
        if name not in clients:
            return None
        values = np.asarray(clients[name], float)
        return (100 if self.percent else 1) * values[np.isfinite(values)]

    def cell(self, values: Floats, spread: float | None = None) -> Cell:
        """Their mean."""
        return Cell(float(values.mean()), spread, not self.percent, 1 if self.percent else None)

    def __str__(self) -> str:
        return f"{self.part} {self.metric}{' in %' if self.percent else ''}"


def to_latex(records: Sequence[Record], target: float | None = None) -> str:
    """A table of several runs: what their models score on average over clients, as mean and
    standard deviation over seeds, and with a target the rounds and megabytes to this objective gap.
    """
    if not isinstance(records, list | tuple):
        raise ScafflixError(f"records is {shown(records)}; give a list of records.")
    for one in records:
        instance("records", one, Record, "a list of records")
    if not records:
        raise ScafflixError("records is empty; give the records of at least one run.")
    if target is not None:
        target = real_number("target", target, above=True)
        if any("objective_gap" not in one.metrics for one in records):
            raise ScafflixError("target is for linear models; a network has no objective gap.")
    measure = _measure(records)
    found = families(records)
    names = list(dict.fromkeys(family.data for family in found))
    several = len(names) > 1
    columns = [WORDS[kind] for kind in KINDS] + (["rounds", "MB"] if target is not None else [])
    head = [*(["data"] if several else []), "method", r"$\alpha$", *columns]
    groups = []
    for name in names:
        mine = [family for family in found if family.data == name]
        cells = in_bold([_cells(family, measure, target) for family in mine])
        labels = [(escaped(one.method), escaped(alpha_label(one.alpha))) for one in mine]
        data = [escaped(Path(name).name) if k == 0 else "" for k in range(len(mine))]
        groups.append(
            [
                [*([word] if several else []), *label, *row]
                for word, label, row in zip(data, labels, cells, strict=True)
            ]
        )
    caption = _caption_of_several(found, measure, target)
    return table(caption, "l" * (len(head) - len(columns)), head, groups)


def check(path: Path) -> None:
    """Refuse, before anything runs, a file that cannot be written."""
    there = next(one for one in (path.absolute(), *path.absolute().parents) if one.exists())
    if path.is_dir():
        raise ScafflixError(f"{path} is a folder; give a file for the table.")
    if there != path.absolute() and not there.is_dir():
        raise ScafflixError(f"{path} cannot be written: {there} is a file.")
    if not os.access(there, os.W_OK):
        raise ScafflixError(f"{path} cannot be written: no permission to write {there}.")


def write(records: Sequence[Record], path: Path, target: float | None = None) -> None:
    """The table of several runs in a file; the target is for those that have an objective gap."""
    gap = all("objective_gap" in record.metrics for record in records)
    made = to_latex(records, target if gap else None)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(made, encoding="utf-8")
    except OSError as error:
        raise ScafflixError(f"{path} cannot be written: {error.strerror}.") from None


def of_one(record: Record) -> str:
    """A table of one run: its models on average over clients, with the spread over clients."""
    measure = _measure([record])
    curves = record.summary.get("calibration") or {}
    kinds = [kind for kind in KINDS if measure.of(record.clients, kind) is not None]
    if not record.summary["n_active"]:  # nobody trained a global model
        kinds.remove("global")
    tenth, worst = (10, np.min) if measure.percent else (90, np.max)
    losses = Measure(measure.part, "loss")
    rows = []
    for kind in kinds:
        values, lost = measure.of(record.clients, kind), losses.of(record.clients, kind)
        assert values is not None
        row = [
            measure.cell(values, float(values.std(ddof=1)) if len(values) > 1 else None),
            measure.cell(np.array([np.percentile(values, tenth)])),
            measure.cell(np.array([worst(values)])),
        ]
        if measure.metric != "loss":
            row.append(losses.cell(lost) if lost is not None else UNKNOWN)
        if curves:
            error = curves.get(kind, {}).get("error", math.nan)
            row.append(Cell(error, None, True, 3))
        rows.append(row)
    head = ["model", "mean", f"{tenth}th percentile", "worst client"]
    head += ["loss"] if measure.metric != "loss" else []
    head += ["calibration error"] if curves else []
    labels = [WORDS[kind] for kind in kinds]
    cells = [[label, *row] for label, row in zip(labels, in_bold(rows), strict=True)]
    spread = r"Mean $\pm$ standard deviation over clients; best in bold."
    caption = f"{_what(families([record]), measure)} {spread}{_interval(record)}"
    return table(caption, "l", head, [cells])


def _interval(record: Record) -> str:
    """How sure the mean of the personalized models is."""
    home = record.summary.get("taken_home")
    if home is None or not ends(home, home):
        return ""
    level = f"{100 * home['level']:.0f}"
    return (
        rf" {level}\,\% interval of the personalized mean: {ends(home, home)} "
        f"(bootstrap over {home['over']})."
    )


def _measure(records: Sequence[Record]) -> Measure:
    """What all of the records say of models."""
    found = []
    for record in records:
        part, metric = scored_part(record), record.summary.get("metric")
        if part is None or metric is None:
            part, metric = "test", "loss"
        measure = Measure(part, metric)
        known = measure.of(record.clients, "personal")
        if known is None or not len(known):
            raise ScafflixError(
                f"The record of {record.config['method']} on {record.config['data']} says nothing "
                "of how good the clients' models are; there is no table to make of it."
            )
        found.append(measure)
    for other in found[1:]:
        if other != found[0]:
            raise ScafflixError(
                f"The records measure {found[0].part} {found[0].metric} and {other.part} "
                f"{other.metric}; make a table of each."
            )
    return found[0]


def _cells(family: Family, measure: Measure, target: float | None) -> list[Cell]:
    """A family's row."""
    row = []
    for kind in KINDS:
        scores = [measure.of(record.clients, kind) for record in family.records]
        nobody = kind == "global" and not family.records[0].summary["n_active"]
        known = [one.mean() for one in scores if one is not None and len(one)]
        if nobody or len(known) < len(scores):
            row.append(UNKNOWN)
        else:
            row.append(measure.cell(np.array(known), _spread(known)))
    if target is not None:
        rounds = [record.rounds_to(target) for record in family.records]
        reached = [count for count in rounds if count is not None]
        if family.own_models or len(reached) < len(rounds):  # the gap is not that of own models
            return [*row, UNKNOWN, UNKNOWN]
        sent = [family.megabytes(count) for count in reached]
        row.append(Cell(float(np.mean(reached)), _spread(reached), True, 0))
        row.append(Cell(float(np.mean(sent)), _spread(sent), True))
    return row


def _spread(values: Sequence[float]) -> float | None:
    """The standard deviation; None of a single value."""
    return float(np.std(values, ddof=1)) if len(values) > 1 else None


def _what(found: Sequence[Family], measure: Measure) -> str:
    """What was measured, of what, on what."""
    groups: dict[str, list[Record]] = {}
    for family in found:
        groups.setdefault(family.data, []).extend(family.records)
    places = [f"{escaped(Path(name).name)} ({_size(mine)})" for name, mine in groups.items()]
    words = f"{escaped(str(measure).capitalize())} on {', '.join(places)}"
    if len(found) == 1:
        alpha = escaped(alpha_label(found[0].alpha))
        words += rf", {escaped(found[0].method)} with $\alpha$ = {alpha}"
    return f"{words}."


def _size(records: Sequence[Record]) -> str:
    """The model, clients and rounds of runs on one problem."""
    rounds = [record.summary["rounds"] for record in records]
    many = f"{max(rounds):,}" if len(set(rounds)) == 1 else f"{min(rounds):,} to {max(rounds):,}"
    model = escaped(records[0].config["model"])
    return f"{model} model, {records[0].summary['n_clients']:,} clients, {many} rounds"


def _caption_of_several(found: Sequence[Family], measure: Measure, target: float | None) -> str:
    seeds = {len(family.records) for family in found}
    if seeds == {1}:
        spread = "one seed"
    else:
        least, most = min(seeds), max(seeds)
        many = f"{most}" if least == most else f"{least} to {most}"
        spread = rf"mean $\pm$ standard deviation over {many} seeds"
    words = f"{_what(found, measure)} Average over clients of each one's local model, of the "
    words += f"global one and of the personalized models; {spread}"
    if target is not None:
        words += f"; rounds and megabytes (MB) until the objective gap is {power(target)}"
        words += f", {NOTHING} where it was not reached"
    return f"{words}; best in bold."
