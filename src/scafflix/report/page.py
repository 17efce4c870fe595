"""One self-contained HTML page from records: the figure, the tables, the configuration."""

from __future__ import annotations

import io
from collections.abc import Sequence
from html import escape
from pathlib import Path

import tomli_w

from scafflix.record import Record
from scafflix.report import accuracy, figures, tables
from scafflix.report.tables import Table

STYLE = """
:root { color-scheme: light dark; }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 64rem; margin: 2rem auto; padding: 0 1rem; }
figure { margin: 1.5rem 0; background: white; border-radius: .5rem; padding: .5rem; }
figure svg { width: 100%; height: auto; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; margin: .5rem 0 1.5rem; font-variant-numeric: tabular-nums; }
th, td { padding: .25rem .8rem; text-align: right; border-bottom: 1px solid #8884; }
th:first-child, td:first-child { text-align: left; }
pre { overflow-x: auto; padding: .8rem; background: #8882; border-radius: .5rem; }
"""


def write(records: Sequence[Record], made: Sequence[Table], title: str, path: Path) -> None:
    """Write the page with the tables made of the records; certificates where there are any."""
    certified = "certificate" in records[0].summary
    parts = [
        f"<h1>{escape(title)}</h1>",
        f"<p>{escape(_introduction(records))}</p>",
        f"<figure>{_svg(records)}</figure>",
        *(_table(table) for table in made),
        *(_certificates(records) if certified else ()),
        "<h2>Configuration of the first run</h2>",
        f"<pre>{escape(tomli_w.dumps(dict(records[0].config)))}</pre>",
        "<h2>Versions</h2>",
        f"<p>{escape(_versions(records[0]))}</p>",
    ]
    path.write_text(
        "<!doctype html>\n<html lang='en'><head><meta charset='utf-8'>"
        "<meta name='viewport' content='width=device-width, initial-scale=1'>"
        f"<title>{escape(title)}</title><style>{STYLE}</style></head>\n<body>\n"
        + "\n".join(parts)
        + "\n</body></html>\n"
    )


def _introduction(records: Sequence[Record]) -> str:
    summary, config = records[0].summary, records[0].config
    return (
        f"{config['model'].capitalize()} model with {summary['dim']} parameters on "
        f"{config['data']} over {summary['n_clients']} clients. The FLIX objective is the mean of "
        "f_i(alpha_i x + (1 - alpha_i) x_i*); alpha = 1 is plain federated learning. Megabytes "
        "count what all clients send and receive."
    )


def _certificates(records: Sequence[Record]) -> Sequence[str]:
    return (
        _table(tables.certificates(records)),
        "<p>Psi is the Lyapunov function of Theorem 1 and the bound is (1 - zeta)<sup>t</sup> "
        "Psi<sup>0</sup> plus the noise of stochastic gradients, in expectation.</p>",
    )


def _svg(records: Sequence[Record]) -> str:
    drawing = io.StringIO()
    drawn = (
        figures.convergence(records)
        if "objective_gap" in records[0].metrics
        else accuracy.figure([accuracy.panel("", records)])
    )
    drawn.savefig(drawing, format="svg", metadata={"Date": None})
    text = drawing.getvalue()
    return text[text.index("<svg") :]


def _table(table: Table) -> str:
    head = "".join(f"<th>{escape(name)}</th>" for name in table.header)
    body = "".join(
        "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in table.rows
    )
    return (
        f"<h2>{escape(table.title)}</h2><div class='wide'><table><thead><tr>{head}</tr></thead>"
        f"<tbody>{body}</tbody></table></div>"
    )


def _versions(record: Record) -> str:
    return ", ".join(f"{name} {number}" for name, number in record.summary["versions"].items())
