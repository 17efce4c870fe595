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
) -> None:
    """Make one self-contained page from the records of one or more runs."""
    from scafflix.record import Record, runs_in
    from scafflix.report import page, worth

    places = [place for folder in folders for place in runs_in(folder)]
    records = [Record.load(place, models=False) for place in places]
    names = ", ".join(dict.fromkeys(Path(record.config["data"]).name for record in records))
    try:
        page.write(records, out, title or f"Runs on {names}", target)
    except OSError as error:
        raise ScafflixError(f"{out} cannot be written: {error.strerror}.") from None
    for table in (worth.chosen(records), worth.worse_off(records)):
        if table is not None:
            show(table)
    wrote("report", out)


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
