"""`scafflix data`: what there is, what is in it, and getting it."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.progress import DownloadColumn, Progress, TaskID

from scafflix import data
from scafflix.cli.display import ERR, MANNER, OUT, show, tell, wrote
from scafflix.cli.options import configured
from scafflix.data.catalogue import SCIKIT_LEARN
from scafflix.data.hub import PREFIX
from scafflix.report.table import Table
from scafflix.runs.config import ProblemConfig

FEW = 20  # entries of a table that are shown in a line

app = typer.Typer(help="Data sets: list, describe, fetch.", no_args_is_help=True)


@app.command("list")
def list_known() -> None:
    """List the data sets that have a name, and whether they are on this machine."""
    rows = []
    for entry in data.known():
        here = "yes" if entry.source == SCIKIT_LEARN or data.locate(entry.name) else "no"
        cells = (entry.clients, entry.rows, entry.classes, here, entry.examples, entry.source)
        rows.append((entry.name, *("" if cell is None else str(cell) for cell in cells)))
    header = ("name", "clients", "rows", "classes", "here", "examples", "source")
    show(Table("Data sets with a name", header, rows))
    if MANNER.words:
        OUT.print(
            "Others: synthetic, the path of a svmlight, CSV, Parquet, npz, LEAF JSON, jsonl or "
            "SQLite file, or hf:FOLDER of a Hugging Face data set."
        )


@app.command()
@configured(ProblemConfig)
def describe(config: ProblemConfig) -> None:
    """Show rows, features, labels and how different the clients are."""
    from scafflix.runs.assembly import load_data

    found = data.describe(load_data(config))
    if MANNER.words:
        for name, value in found.items():
            OUT.print(f"{name.replace('_', ' '):>20}  {_words(value)}", soft_wrap=True)
    MANNER.said |= found


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
    names: Annotated[
        list[str], typer.Argument(help="Names from scafflix data list, or hf:OWNER/NAME.")
    ],
) -> None:
    """Download data sets into the cache and check them; a broken download is continued."""
    for name in names:
        if name.startswith(PREFIX):
            tell("download", f"{name} comes from huggingface.co, unless it is here already.")
        with Progress(
            *Progress.get_default_columns(),
            DownloadColumn(),
            console=ERR,
            disable=MANNER.quiet or not ERR.is_terminal,
        ) as bar:
            tasks: dict[str, TaskID] = {}

            def report(  # type: ignore[no-untyped-def]
                file: str, received: int, announced: int | None, bar=bar, tasks=tasks
            ) -> None:
                if file not in tasks:
                    tasks[file] = bar.add_task(file, total=None)
                bar.update(tasks[file], completed=received, total=announced)

            path = data.fetch(name, report)
        wrote(name, path)
