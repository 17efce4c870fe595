"""`scafflix report` and `track`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from scafflix.cli.display import show, wrote
from scafflix.core.errors import ScafflixError

Folders = Annotated[
    list[Path],
    typer.Argument(help="Folders that hold runs, at any depth.", metavar="DIR..."),
]


def report(
    folders: Folders,
    out: Annotated[Path, typer.Option("--out", "-o", help="File to write.", metavar="FILE")] = Path(
        "report.html"
    ),
    title: Annotated[str | None, typer.Option(help="Title of the page.")] = None,
    target: Annotated[
        float | None,
        typer.Option(help="Count rounds and megabytes up to this objective gap."),
    ] = None,
    table: Annotated[
        Path | None,
        typer.Option("--latex", help="Also write a LaTeX table of the runs.", metavar="FILE"),
    ] = None,
) -> None:
    """Make one self-contained page from the records of one or more runs."""
    from scafflix.record import Record, runs_in
    from scafflix.report import latex, page, worth

    if table is not None:
        latex.check(table)
    places = [place for folder in folders for place in runs_in(folder)]
    records = [Record.load(place, models=False) for place in places]
    names = ", ".join(dict.fromkeys(Path(record.config["data"]).name for record in records))
    try:
        page.write(records, out, title or f"Runs on {names}", target)
    except OSError as error:
        raise ScafflixError(f"{out} cannot be written: {error.strerror}.") from None
    for make in (worth.taken_home, worth.chosen, worth.worse_off, worth.calibration):
        made = make(records)
        if made is not None:
            show(made)
    wrote("report", out)
    if table is not None:
        latex.write(records, table, target)
        wrote("table", table)


def track(
    folders: Folders,
    to: Annotated[str, typer.Option(help="tensorboard, mlflow or wandb.")],
    where: Annotated[
        str, typer.Option(help="Folder to write to; for MLflow also the address of a server.")
    ] = "tracked",
) -> None:
    """Send records to a tracker: TensorBoard, MLflow or Weights & Biases, offline."""
    from scafflix.record import Record, runs_in
    from scafflix.report import trackers

    for folder in folders:
        for place in runs_in(folder):
            name = str(place.absolute().relative_to(folder.absolute().parent)).replace("/", "-")
            trackers.track(Record.load(place, models=False), to, where, name)
            wrote(name, Path(where))
