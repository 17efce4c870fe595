"""What taking part was worth, in words."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from scafflix.record import Record
from scafflix.report.curves import Family, alpha_label, families
from scafflix.report.recommendation import Words, against_own, ends, number, words_of
from scafflix.report.table import Table
from scafflix.report.tables import KINDS

OWN = "own models"  # by whatever way


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
            one = found[kind]
            many = f"{one['hurt']} of {found['clients']} clients worse off"
            against = against_own(one, words_of(record.summary).own)
            made[f"{found['part']} loss, {kind}"] = f"{against}; {many}{by(one)}"
    curves: dict[str, Any] | None = record.summary.get("calibration")
    if curves is not None:
        each = [f"{kind} {curves[kind]['error']:.3g}" for kind in KINDS if kind in curves]
        made["calibration error"] = ", ".join(each)
    return made


def spread(record: Record) -> str:
    """The alphas of the clients."""
    alpha = np.percentile(record.clients["alpha"], (0, 50, 100))
    low, middle, high = (f"{value:.2g}" for value in alpha)
    return f"{low} to {high}, median {middle}"


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

    title = f"Clients with more held-out loss than {_shared_words(found).than}"
    return _by_family(title, ("personal", "global"), found, cells)


def taken_home(records: Sequence[Record]) -> Table | None:
    """The models that clients take home, on average over clients, and against the others."""
    made = families(records)
    found = [one for one in made if one.records[0].summary.get("taken_home") is not None]

    def cells(family: Family) -> tuple[str, ...]:
        home = family.records[0].summary["taken_home"]
        words = [f"{number(home, home['mean'])}{_in_brackets(ends(home, home))}"]
        for kind in ("local", "global"):
            one = home.get(kind)
            gap = "" if one is None else number(home, one["difference"], "+")
            words.append(gap + ("" if one is None else _in_brackets(ends(home, one, "+"))))
        return tuple(words)

    if not found:
        return None
    home = found[0].records[0].summary["taken_home"]
    unit = " in %" if home["metric"] == "accuracy" else ""
    title = (
        f"{home['part'].capitalize()} {home['metric']}{unit} of the models taken home, "
        f"{100 * home['level']:.0f} % intervals"
    )
    each = f"- {_shared_words(found).each}"
    return _by_family(title, ("taken home", each, "- one for all"), found, cells)


def _shared_words(found: Sequence[Family]) -> Words:
    """What all of these call the clients' own models."""
    words = {words_of(family.records[0].summary) for family in found}
    return words.pop() if len(words) == 1 else Words("", OWN, OWN, f"with their {OWN}")


def _in_brackets(words: str) -> str:
    return f" [{words.replace(' to ', ', ')}]" if words else ""


def calibration(records: Sequence[Record]) -> Table | None:
    """The expected calibration error of each kind of model, over seeds."""
    made = families(records)
    found = [one for one in made if one.records[0].summary.get("calibration") is not None]

    def cells(family: Family) -> tuple[str, ...]:
        curves = [record.summary["calibration"] for record in family.records]
        return tuple(
            f"{np.mean([one[kind]['error'] for one in curves]):.4f}" if kind in curves[0] else ""
            for kind in KINDS
        )

    return _by_family("Expected calibration error", KINDS, found, cells)


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
