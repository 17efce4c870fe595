"""`scafflix adapt`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from scafflix.core.errors import ScafflixError

SHOWN = {  # columns of the table of clients, and their titles
    "client": "client",
    "train_examples": "examples",
    "alpha": "alpha",
    "expected_gain": "expected gain",
    "test_loss_local": "loss alone",
    "test_loss_global": "global",
    "test_loss_personal": "adapted",
}


def adapt(
    run: Annotated[Path, typer.Argument(help="Folder of the run.", metavar="RUN")],
    data: Annotated[
        str, typer.Option("--data", help="The newcomers' examples: a file as run takes it.")
    ] = "",
    split: Annotated[
        str | None,
        typer.Option(help="column:NAME says whose row it is (default: all are one newcomer's)."),
    ] = None,
    label: Annotated[
        str | None, typer.Option(help="Label column of a table (default: that of the run).")
    ] = None,
    test: Annotated[float, typer.Option(help="Share of the examples held out for testing.")] = 0.0,
    validation: Annotated[
        float | None,
        typer.Option(help="The same for validation, of a network (default: 0.2)."),
    ] = None,
    data_seed: Annotated[int, typer.Option(help="Seed of the held-out part.")] = 0,
    out: Annotated[Path | None, typer.Option("--out", help="Folder to write to.")] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Write even if the folder is not empty.")
    ] = False,
) -> None:
    """Give clients that took no part in a run their models: their own, mixed with its global one.

    Nobody else trains. alpha is chosen by leave-one-out, or for a network by validation examples,
    and by what the run's clients told.
    """
    if not data:
        raise ScafflixError("data is missing; give the newcomers' examples.")
    from scafflix.cli.display import conclusion, in_words, show, wrote
    from scafflix.cli.work import prepare
    from scafflix.core.folders import check_new_folder, file_name
    from scafflix.record import Record
    from scafflix.report.table import Table
    from scafflix.runs import adapting

    folder = out or Path("runs") / file_name(f"{run.name}-{Path(data).stem}-adapted")
    check_new_folder(folder, force=force)
    prepare()
    found = Record.load(run)
    parts: dict[str, Any] = {"test": test, "validation": validation}
    made = adapting.adapt(found, data, split=split, label=label, seed=data_seed, **parts)
    made.save(folder, force=force)
    columns = {name: title for name, title in SHOWN.items() if name in made.clients}
    rows = zip(*(made.clients[name].tolist() for name in columns), strict=True)
    words = [tuple(map(in_words, row)) for row in rows]
    show(Table("Newcomers", tuple(columns.values()), words))
    notes = {note for note in made.clients["alpha_note"].tolist() if note}
    for note in sorted(notes):
        which = made.clients["client"][made.clients["alpha_note"] == note]
        conclusion(f"{', '.join(which.tolist())} had {note}.")
    wrote("record", folder)
