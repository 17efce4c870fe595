"""One self-contained HTML page from records: charts, tables, configurations."""

from __future__ import annotations

import base64
import gzip
import json
import math
from collections.abc import Sequence
from html import escape
from importlib import resources
from pathlib import Path
from string import Template

from scafflix.core.errors import ScafflixError
from scafflix.record import Record
from scafflix.report import tables, worth
from scafflix.report.content import best, content
from scafflix.report.curves import Family, families
from scafflix.report.headline import Card, headline, line_name
from scafflix.report.recommendation import recommendation
from scafflix.report.table import Table


def write(records: Sequence[Record], path: Path, title: str, target: float | None = None) -> None:
    """Write the page; `target` is the objective gap up to which rounds are counted."""
    if target is not None and not 0 < target < math.inf:
        raise ScafflixError(f"target is {target}; it must be a finite number above 0.")
    found = families(records)
    panels = {
        name: [family for family in found if family.data == name]
        for name in dict.fromkeys(family.data for family in found)
    }
    assets = resources.files("scafflix.report") / "assets"
    plotly = (resources.files("plotly") / "package_data" / "plotly.min.js").read_bytes()
    numbers = json.dumps(content(found, target), separators=(",", ":"), allow_nan=False)
    page = Template((assets / "page.html").read_text()).substitute(
        title=escape(title),
        style=(assets / "page.css").read_text(),
        introduction="".join(f"<p>{escape(_introduction(mine))}</p>" for mine in panels.values()),
        cards="".join(_cards(name, mine, target, len(panels)) for name, mine in panels.items()),
        tables_target=_tables(panels, "target", target),
        tables_certificates=_tables(panels, "certificates", target),
        tables_scores=_tables(panels, "scores", target),
        tables_alpha=_tables(panels, "alpha", target),
        tables_alone=_tables(panels, "alone", target),
        tables_home=_tables(panels, "home", target),
        tables_calibration=_tables(panels, "calibration", target),
        plotly=_packed(plotly),
        numbers=_packed(numbers.encode()),
        script="".join((assets / name).read_text() for name in ("charts.js", "page.js")),
    )
    path.write_text(page, encoding="utf-8")


def _packed(text: bytes) -> str:
    """A third of the size; and no text from a record is ever read as HTML."""
    return base64.b64encode(gzip.compress(text, mtime=0)).decode()


def _introduction(mine: Sequence[Family]) -> str:
    record = mine[0].records[0]
    summary, config = record.summary, record.config
    seeds = max(len(family.records) for family in mine)
    runs = sum(len(family.records) for family in mine)
    return (
        f"{Path(mine[0].data).name}: {config['model']} model with {summary['dim']:,} parameters, "
        f"{summary['n_clients']:,} clients; {runs} run{'s' if runs > 1 else ''}"
        + (f" with up to {seeds} seeds each." if seeds > 1 else ".")
    )


def _cards(name: str, mine: Sequence[Family], target: float | None, panels: int) -> str:
    made = "".join(_card(card) for card in headline(mine, target))
    heading = f"<h2 class='panel'>{escape(Path(name).name)}</h2>" if panels > 1 else ""
    return f"{heading}{_words(mine)}<dl class='cards'>{made}</dl>"


def _words(mine: Sequence[Family]) -> str:
    """What the line whose models score best comes to."""
    chosen = best(mine)
    found = recommendation(chosen.records[0])
    if found and len(mine) > 1:
        found = (f"{line_name(chosen)}: {found[0]}", *found[1:])
    return "".join(f"<p class='words'>{escape(sentence)}</p>" for sentence in found)


def _card(card: Card) -> str:
    return (
        f"<div><dt>{escape(card.title)}</dt><dd>{escape(card.value)}</dd>"
        f"<dd class='note'>{escape(card.note)}</dd></div>"
    )


def _tables(panels: dict[str, list[Family]], which: str, target: float | None) -> str:
    """The numbers behind a chart, for every problem that has them."""
    made = []
    for name, mine in panels.items():
        records = [record for family in mine for record in family.records]
        table = _numbers(which, records, target)
        made += [] if table is None else [_table(table, name if len(panels) > 1 else "")]
    return "".join(made)


def _numbers(which: str, records: Sequence[Record], target: float | None) -> Table | None:
    first = records[0]
    if which == "target" and target is not None and "objective_gap" in first.metrics:
        return tables.to_target(records, target)
    if which == "certificates" and "lyapunov" in first.metrics:
        return tables.certificates(records)
    if which == "scores" and tables.scored_part(first):
        return tables.scores(records)
    made = {"alpha": worth.chosen, "alone": worth.worse_off}
    made |= {"home": worth.taken_home, "calibration": worth.calibration}
    return made[which](records) if which in made else None


def _table(table: Table, name: str) -> str:
    title = f"{Path(name).name}: {table.title}" if name else table.title
    head = "".join(f"<th scope='col'>{escape(word)}</th>" for word in table.header)
    body = "".join(
        "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in table.rows
    )
    return (
        f"<details><summary>{escape(title)}</summary><div class='wide' tabindex='0'>"
        f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div></details>"
    )
