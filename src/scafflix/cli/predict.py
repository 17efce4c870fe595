"""`scafflix predict`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from scafflix.core.errors import ScafflixError


def predict(
    run: Annotated[Path, typer.Argument(help="Folder of the run.", metavar="RUN")],
    data: Annotated[Path, typer.Option("--data", help="Table of the rows.", metavar="FILE")],
    client: Annotated[
        str | None, typer.Option(help="Whose model answers; not needed for the global one.")
    ] = None,
    model: Annotated[
        str, typer.Option(help="personal, local (what the client learned alone) or global.")
    ] = "personal",
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="CSV or Parquet file to write (default: print CSV)."),
    ] = None,
    columns: Annotated[
        bool, typer.Option("--columns", help="Keep the columns of the table beside the answers.")
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Replace the file.")] = False,
) -> None:
    """Let a model of a run answer for every row of a table: classes with probabilities, or numbers.

    Columns are prepared as in training: missing values filled in, texts encoded, numbers scaled.
    """
    from scafflix.cli.display import MANNER, wrote
    from scafflix.core import durable
    from scafflix.data.table import as_written, write_table
    from scafflix.data.tabular import table_for
    from scafflix.record import Record

    if out is not None:
        durable.check_new(out, force=force)
    if out is not None and out.suffix.lower() not in (".csv", ".parquet"):
        raise ScafflixError(f"{out}: answers are written as .csv or .parquet; choose one.")
    record = Record.load(run)
    made = record.preprocessing
    if made is None or not made.columns:
        raise ScafflixError(
            f"{run} was not made from a table, so that a table cannot be answered; use "
            "record.predict in Python, with an array of examples."
        )
    answers = record.predictor(client, model)(table_for(made, data))
    beside = as_written(data) if columns else None
    table = answers.table(made.label, beside)
    if out is None:
        if MANNER.words:
            write_table(table, sys.stdout.buffer, "csv")
        MANNER.said["answers"] = table.to_pylist()
        return
    with durable.replacing(out) as file:
        write_table(table, file, out.suffix.lower()[1:])
    wrote("answers", out)
