"""`scafflix export`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from scafflix.core.errors import ScafflixError


def export(
    run: Annotated[Path, typer.Argument(help="Folder of the run.", metavar="RUN")],
    format: Annotated[
        str, typer.Option("--format", help="onnx, sklearn-json, safetensors, torch or table.")
    ],
    client: Annotated[
        str | None, typer.Option(help="Whose model it is; not needed for the global one.")
    ] = None,
    model: Annotated[
        str, typer.Option(help="personal, local (what the client learned alone) or global.")
    ] = "personal",
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="File to write (default for a table: print it)."),
    ] = None,
    check: Annotated[
        Path | None,
        typer.Option(
            "--check",
            help="Table of rows on which the file must answer as the run does.",
            metavar="FILE",
        ),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace the file.")] = False,
) -> None:
    """Write a model of a run for other programs, with what is done to columns before it.

    A table has the coefficients in the units of the columns, and odds ratios.
    """
    from scafflix.cli.display import conclusion, show, wrote
    from scafflix.record import Record
    from scafflix.report.table import Table

    if out is None and format != "table":
        raise ScafflixError("out is missing; name the file to write with -o FILE.")
    record = Record.load(run)
    if out is None:
        found = record.coefficients(client, model=model)
        rows = [tuple(map(_short, row.values())) for row in found.to_pylist()]
        whose = "global model" if model == "global" else f"{model} model of {client}"
        show(Table(f"Coefficients of the {whose}", tuple(found.column_names), rows))
        return
    differs = record.export(client, out, format, model=model, check=check, force=force)
    wrote(format, out)
    if differs is not None:
        conclusion(
            f"Its answers for {check} differ from those of the run by at most {differs:.2g}."
        )


def _short(value: float | str | None) -> str:
    """A value of the table as a terminal shows it; the file has all digits."""
    from scafflix.cli.display import in_words

    return "" if value is None else in_words(value)
