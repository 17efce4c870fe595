"""The numbers of a comparison in rows."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from scafflix.record import Record
from scafflix.report.curves import Family, alpha_label, families
from scafflix.report.table import Table

KINDS = ("local", "global", "personal")


def to_target(records: Sequence[Record], target: float) -> Table:
    """Rounds and megabytes until the objective gap is at most the target."""
    found = families(records)

    def row(family: Family) -> tuple[str, ...]:
        rounds = family.rounds_to(target)
        missed = "own models" if family.own_models else "not reached"
        gap = np.median(family.metric("objective_gap")[:, -1])
        return (
            family.method,
            alpha_label(family.alpha),
            missed if rounds is None else f"{rounds:g}",
            "" if rounds is None else f"{family.megabytes(rounds):.2f}",
            f"{max(gap, 0.0):.1e}",
        )

    last = int(max(family.rounds[-1] for family in found))
    return Table(
        f"Rounds and megabytes until the objective gap is {target:g}",
        ("method", "alpha", "rounds", "megabytes", f"gap at round {last}"),
        [row(family) for family in found],
    )


def by_panel(records: Sequence[Record], target: float) -> Table:
    """For several data sets: rounds to the target at each alpha, and the certificate."""
    found = families(records)
    alphas = list(dict.fromkeys(family.alpha for family in found))
    last = int(found[0].rounds[-1])

    def row(data: str, method: str) -> tuple[str, ...]:
        mine = {f.alpha: f for f in found if (f.data, f.method) == (data, method)}
        rounds = [mine[alpha].rounds_to(target) for alpha in alphas]
        words = [f"> {last}" if count is None else f"{count:g}" for count in rounds]
        ratio = worst_ratio([record for family in mine.values() for record in family.records])
        return data, method, *words, ratio

    pairs = dict.fromkeys((family.data, family.method) for family in found)
    return Table(
        f"Rounds until the objective gap is {target:g}, by alpha, and the worst Psi/bound",
        ("data", "method", *(alpha_label(alpha) for alpha in alphas), "ratio"),
        [row(*pair) for pair in pairs],
    )


def worst_ratio(records: Sequence[Record]) -> str:
    """The largest Psi over its bound in any of the runs that have a certificate."""
    made = [record.summary["certificate"] for record in records]
    ratios = [one["worst_ratio"] for one in made if one is not None]
    return f"{max(ratios):.3f}" if ratios else "none"


def scores(records: Sequence[Record]) -> Table:
    """How good the models are for the clients, on their test part where there is one."""
    found = families(records)
    part = scored_part(records[0]) or "train"
    metric = records[0].summary["metric"]
    percent = metric == "accuracy"

    def cell(family: Family, kind: str) -> str:
        nobody = kind == "global" and not family.records[0].summary["n_active"]
        if nobody or f"{part}_{kind}" not in family.records[0].clients:
            return "none"
        values = family.scores(part, kind)
        # the unlucky tenth: low accuracies, large errors
        mean, tenth = values.mean(), np.percentile(values, 10 if percent else 90)
        return f"{100 * mean:.1f} / {100 * tenth:.1f} %" if percent else f"{mean:.4g} / {tenth:.4g}"

    unlucky = "10th percentile" if percent else "90th percentile"
    rows = [
        (family.method, alpha_label(family.alpha), *(cell(family, kind) for kind in KINDS))
        for family in found
    ]
    title = f"{part.capitalize()} {metric} over clients: mean / {unlucky}"
    return Table(title, ("method", "alpha", *KINDS), rows)


def scored_part(record: Record) -> str | None:
    """The part of the data on which the clients' models were scored, the more honest first."""
    parts = ("test", "validation", "train")
    return next((part for part in parts if f"{part}_personal" in record.clients), None)


def certificates(records: Sequence[Record]) -> Table:
    """The Lyapunov function against the theorem's bound: the worst seed of each, or why there is
    no bound."""

    def row(family: Family) -> tuple[str, ...]:
        made = [record.summary.get("certificate") for record in family.records]
        known = [certificate for certificate in made if certificate is not None]
        if len(known) < len(made):
            reason = family.records[0].summary.get("no_certificate")
            return family.method, alpha_label(family.alpha), reason or "no guarantee", "", ""
        worst = max(known, key=lambda certificate: certificate["worst_ratio"])
        ratio, holds = f"{worst['worst_ratio']:.3f}", "yes" if worst["holds"] else "no"
        return family.method, alpha_label(family.alpha), ratio, str(worst["worst_round"]), holds

    header = ("method", "alpha", "worst Psi / bound", "at round", "holds")
    return Table("Certificate", header, [row(family) for family in families(records)])
