"""`scafflix data`: what there is, what is in it, and getting it."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.progress import DownloadColumn, Progress
from rich.table import Table

from scafflix import data
from scafflix.cli.display import ERR, OUT
from scafflix.cli.options import configured
from scafflix.config import ProblemConfig
from scafflix.experiment import load_data

app = typer.Typer(help="Data sets: list, describe, fetch.", no_args_is_help=True)


@app.command("list")
def list_known() -> None:
    """The data sets that have a name, and whether they are here."""
    table = Table(header_style="bold")
    for column in ("name", "rows", "features", "classes", "source", "here"):
        table.add_column(column, justify="left" if column in ("name", "source") else "right")
    for entry in data.known():
        classes = "" if entry.classes is None else str(entry.classes)
        here = "yes" if entry.sha256 is None or data.locate(entry.name) else "no"
        table.add_row(entry.name, str(entry.rows), str(entry.features), classes, entry.source, here)
    OUT.print(table)
    OUT.print("Others: synthetic, or the path of a svmlight, CSV, Parquet or npz file.")


@app.command()
@configured(ProblemConfig)
def describe(config: ProblemConfig) -> None:
    """Rows, features, labels and how unlike the clients are."""
    for name, value in data.describe(load_data(config)).items():
        OUT.print(f"{name.replace('_', ' '):>20}  {_words(value)}")


def _words(value: object) -> str:
    if isinstance(value, tuple):
        return " ".join(map(str, value))
    if isinstance(value, dict):
        return ", ".join(f"{label}: {count}" for label, count in value.items())
    return f"{value:.4g}" if isinstance(value, float) else str(value)


@app.command()
def fetch(
    names: Annotated[list[str], typer.Argument(help="Names from scafflix data list.")],
) -> None:
    """Download into the cache, with a check of the SHA-256 sum."""
    for name in names:
        with Progress(*Progress.get_default_columns(), DownloadColumn(), console=ERR) as bar:
            task = bar.add_task(name, total=None)

            def report(received: int, announced: int | None, bar=bar, task=task) -> None:  # type: ignore[no-untyped-def]
                bar.update(task, completed=received, total=announced)

            path = data.fetch(name, report)
        OUT.print(f"{name}: {path}", soft_wrap=True)
