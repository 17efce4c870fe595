"""The numbers on top of the page."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from scafflix.report import worth
from scafflix.report.content import best, main_metric
from scafflix.report.curves import Family, alpha_label
from scafflix.report.recommendation import ends, words_of
from scafflix.report.tables import KINDS, scored_part


class Card(NamedTuple):
    """One number, what it is, and what to hold it against."""

    title: str
    value: str
    note: str


def headline(found: Sequence[Family], target: float | None = None) -> list[Card]:
    """What the records of one problem say first."""
    return [
        *_speed(found, target),
        *_scores(found),
        *_alone(found),
        *_certificates(found),
        *_divergence(found),
        *_effort(found),
    ]


def line_name(family: Family) -> str:
    """A line, as the page calls it."""
    return f"{family.method}, α = {alpha_label(family.alpha)}"


def _plural(count: int, word: str) -> str:
    return f"{count} {word}{'' if count == 1 else 's'}"


def _speed(found: Sequence[Family], target: float | None) -> Iterator[Card]:
    ran = [family for family in found if family.records[0].summary["n_active"]]
    ran = [family for family in ran if not family.own_models]  # a gap says nothing of those
    if not ran or main_metric(ran[0]) != "objective_gap":
        return
    if target is None or len(ran) == 1:
        least = min(ran, key=lambda family: family.band("objective_gap")[0][-1])
        gap = least.band("objective_gap")[0][-1]
        yield Card(
            "Objective gap at the end",
            f"{gap:.1e}",
            f"{line_name(least)}, {least.rounds[-1]} rounds",
        )
        return
    counts = {line_name(family): family.rounds_to(target) for family in ran}
    reached = {name: rounds for name, rounds in counts.items() if rounds is not None}
    title = f"Fewest rounds to a gap of {target:g}"
    if not reached:
        yield Card(title, "none", f"{_plural(len(ran), 'line')}, none got there")
        return
    best_name = min(reached, key=lambda name: reached[name])
    missed = len(counts) - len(reached)
    slowest = max(reached.values())
    note = f"{best_name}; the slowest took {slowest:,g}"
    note += f", {missed} of {len(counts)} did not get there" if missed else ""
    yield Card(title, f"{reached[best_name]:,g}", note)


def _scores(found: Sequence[Family]) -> Iterator[Card]:
    chosen = best(found)
    part, clients = scored_part(chosen.records[0]), chosen.records[0].clients
    if part is None:
        return
    metric = chosen.records[0].summary["metric"]
    sign = 1 if metric == "accuracy" else -1

    def words(kind: str) -> str:
        value = chosen.scores(part, kind).mean()
        return f"{100 * value:.1f} %" if metric == "accuracy" else f"{value:.4g}"

    others = [f"{kind} {words(kind)}" for kind in KINDS[:2] if f"{part}_{kind}" in clients]
    home = chosen.records[0].summary.get("taken_home")
    if home is not None and ends(home, home):
        others.insert(0, f"{100 * home['level']:.0f} % interval {ends(home, home)}")
    yield Card(
        f"Best mean {part} {metric}, personalized",
        words("personal"),
        "; ".join([line_name(chosen), *others]),
    )
    if f"{part}_local" not in clients:
        return
    own = words_of(chosen.records[0].summary)
    gain = sign * (clients[f"{part}_personal"] - clients[f"{part}_local"])
    known = int(np.isfinite(gain).sum())
    yield Card(
        f"Clients that gain by {own.act}",
        f"{int((gain > 0).sum()):,} of {known:,}",
        f"by {part} {metric}; {int((gain < 0).sum()):,} lose, {int((gain == 0).sum()):,} score "
        f"the same as {own.than} ({line_name(chosen)})",
    )


def _alone(found: Sequence[Family]) -> Iterator[Card]:
    chosen = best(found)
    summary = chosen.records[0].summary
    alone, alpha = summary.get("taking_part"), summary.get("alpha")
    if alone is None:
        return
    mine, common, part = alone["personal"], alone["global"], alone["part"]
    own = words_of(summary)
    yield Card(
        f"Worse off than {own.than}, by {part} loss",
        f"{mine['hurt']:,} of {alone['clients']:,}",
        f"{100 * mine['share_hurt']:.0f} %{worth.by(mine)}; with the global model "
        f"{common['hurt']:,}{worth.by(common)} ({line_name(chosen)})",
    )
    if alpha is not None:
        yield Card(
            f"Mean {part} loss saved by {own.act}",
            f"{mine['gain']:.3g}",
            f"{alpha['expected_gain']:.3g} expected; alpha by {alpha['rule']}, "
            f"{worth.spread(chosen.records[0])}",
        )


def _certificates(found: Sequence[Family]) -> Iterator[Card]:
    made = [
        record.summary["certificate"]
        for family in found
        for record in family.records
        if record.summary.get("certificate") is not None
    ]
    if not made:
        reasons = [family.records[0].summary.get("no_certificate") for family in found]
        measured = "lyapunov" in found[0].records[0].metrics
        if measured and reasons[0] is not None and len(set(reasons)) == 1:
            yield Card("Theorem’s bound", "none", reasons[0])
        return
    holds = sum(certificate["holds"] for certificate in made)
    worst = max(certificate["worst_ratio"] for certificate in made)
    yield Card(
        "Theorem’s bound held in",
        f"{holds} of {len(made)} runs",
        f"largest Ψ / bound {worst:.3f}; runs without a guarantee are not counted",
    )


def _divergence(found: Sequence[Family]) -> Iterator[Card]:
    diverged = [f for f in found if any(one.summary.get("diverged") for one in f.records)]
    if diverged:
        yield Card("Diverged", _plural(len(diverged), "line"), "; ".join(map(line_name, diverged)))


def _who(summary: Mapping[str, Any]) -> str:
    """Who takes part in a round."""
    cohort, active = summary.get("cohort"), summary["n_active"]
    return f"{cohort} of {active} clients each" if cohort and cohort < active else "all clients"


def _effort(found: Sequence[Family]) -> Iterator[Card]:
    if len(found) > 1:
        return
    (family,) = found
    summary = family.records[0].summary
    yield Card(
        "Communication",
        f"{family.traffic[-1]:.3g} MB",
        f"{_plural(int(family.rounds[-1]), 'round')}, {_who(summary)}, both directions",
    )
    yield Card(
        "Computing",
        f"{summary['seconds']:.3g} s",
        f"{summary['iterations']} local steps in all rounds",
    )
    if "final_objective" in summary:
        active = summary["n_active"]
        yield Card(
            "Objective at the end",
            f"{summary['final_objective']:.4g}",
            f"over {summary.get('final_objective_clients', active)} of {active} clients, "
            f"{summary['refused']} messages refused, {summary['dropped']} uploads dropped",
        )
