"""`scafflix data`: what there is, what is in it, and getting it."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.box import SIMPLE_HEAD
from rich.progress import DownloadColumn, Progress, TaskID
from rich.table import Table

from scafflix import data
from scafflix.cli.display import ERR, OUT
from scafflix.cli.options import configured
from scafflix.config import ProblemConfig
from scafflix.experiment import load_data

FEW = 20  # entries of a table that are shown in a line

app = typer.Typer(help="Data sets: list, describe, fetch.", no_args_is_help=True)


@app.command("list")
def list_known() -> None:
    """The data sets that have a name, and whether they are here."""
    table = Table(header_style="bold", box=SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
    for column in ("name", "clients", "rows", "examples", "classes", "source", "here"):
        words = column in ("name", "examples", "source")
        table.add_column(column, justify="left" if words else "right")
    for entry in data.known():
        here = "yes" if not entry.files or data.locate(entry.name) else "no"
        cells = (entry.clients, entry.rows, entry.examples, entry.classes, entry.source, here)
        table.add_row(entry.name, *("" if cell is None else str(cell) for cell in cells))
    OUT.print(table)
    OUT.print(
        "Others: synthetic, or the path of a svmlight, CSV, Parquet, npz, LEAF JSON, jsonl or "
        "SQLite file."
    )


@app.command()
@configured(ProblemConfig)
def describe(config: ProblemConfig) -> None:
    """Rows, features, labels and how unlike the clients are."""
    for name, value in data.describe(load_data(config)).items():
        OUT.print(f"{name.replace('_', ' '):>20}  {_words(value)}", soft_wrap=True)


def _words(value: object) -> str:
    if isinstance(value, tuple):
        return " ".join(map(str, value))
    if value is None or value == {}:
        return "none"
    if isinstance(value, dict):
        shown = [f"{label}: {count}" for label, count in value.items()]
        rest = [f"and {len(shown) - FEW} more"] if len(shown) > FEW else []
        return ", ".join([*shown[:FEW], *rest])
    return f"{value:.4g}" if isinstance(value, float) else str(value)


@app.command()
def fetch(
    names: Annotated[list[str], typer.Argument(help="Names from scafflix data list.")],
) -> None:
    """Download into the cache, with a check of what arrived; a broken download goes on."""
    for name in names:
        with Progress(
            *Progress.get_default_columns(),
            DownloadColumn(),
            console=ERR,
            disable=not ERR.is_terminal,
        ) as bar:
            tasks: dict[str, TaskID] = {}

            def report(  # type: ignore[no-untyped-def]
                file: str, received: int, announced: int | None, bar=bar, tasks=tasks
            ) -> None:
                if file not in tasks:
                    tasks[file] = bar.add_task(file, total=None)
                bar.update(tasks[file], completed=received, total=announced)

            path = data.fetch(name, report)
        OUT.print(f"{name}: {path}", soft_wrap=True)
