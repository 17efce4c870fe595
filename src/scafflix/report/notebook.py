"""Records and plans in a notebook."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from functools import singledispatch
from html import escape
from typing import Any

import numpy as np

from scafflix.record import Record
from scafflix.report import accuracy, figures
from scafflix.report.content import main_metric
from scafflix.report.curves import alpha_label, families
from scafflix.report.figures import Picture
from scafflix.report.headline import headline
from scafflix.report.latex import of_one as latex
from scafflix.theory import Plan

__all__ = ["html", "latex", "picture"]
INCHES = (6.4, 3.4)


@singledispatch
def picture(thing: object) -> Picture:
    """What `thing.plot()` draws."""
    raise NotImplementedError(type(thing))


@singledispatch
def html(thing: object) -> str:
    """What a notebook shows of it."""
    raise NotImplementedError(type(thing))


@picture.register
def _(record: Record) -> Picture:
    """The curves of one run: gap and gradient, what its models score, or its objective."""
    (family,) = families([record])
    judged = main_metric(family)
    if judged == "objective_gap":
        return figures.convergence([record])
    if judged != "objective":
        return accuracy.figure([accuracy.panel("", [record])])
    made = Picture(figsize=INCHES, layout="constrained")
    axes = made.subplots()
    axes.plot(family.rounds, family.metric("objective")[0])
    axes.set_xlabel("communication rounds")
    axes.set_ylabel("objective over the clients that replied")
    axes.grid(visible=True, alpha=0.3)
    return made


@html.register
def _(record: Record) -> str:
    """What the run says first, and its curves."""
    facts = {card.title: f"{card.value} ({card.note})" for card in headline(families([record]))}
    asked = record.config
    title = f"{asked['method']} on {asked['data']}, alpha = {alpha_label(asked['alpha'])}"
    return _table(title, facts) + _image(picture(record))


@picture.register
def _(plan: Plan) -> Picture:
    """Each quantity over the clients, sorted, on a logarithmic axis."""
    made = Picture(figsize=(2 * INCHES[0], INCHES[1]), layout="constrained")
    quantities = {
        "stepsizes $\\gamma_i$": plan.gamma,
        "smoothness $L_i$": plan.constants.L,
        "condition numbers $\\kappa_i$": plan.constants.kappa,
    }
    for axes, (title, values) in zip(made.subplots(1, 3), quantities.items(), strict=True):
        axes.semilogy(np.arange(1, plan.n + 1), np.sort(values), marker=".")
        axes.set_title(title)
        axes.set_xlabel("clients, sorted")
        axes.grid(visible=True, alpha=0.3)
    return made


@html.register
def _(plan: Plan) -> str:
    """The plan in numbers."""
    facts = {name: f"{v:.4g}" if isinstance(v, float) else v for name, v in plan.facts.items()}
    return _table(f"Plan for {plan.n} clients", facts)


def _table(title: str, facts: Mapping[str, Any]) -> str:
    rows = "".join(
        f"<tr><th style='text-align:left'>{escape(name)}</th>"
        f"<td style='text-align:left'>{escape(str(value))}</td></tr>"
        for name, value in facts.items()
    )
    return f"<table><caption>{escape(title)}</caption>{rows}</table>"


def _image(drawn: Picture) -> str:
    data = base64.b64encode(drawn._repr_png_()).decode()
    return f"<img alt='the curves of the run' src='data:image/png;base64,{data}'>"
