"""`scafflix resume`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from scafflix.core.errors import ScafflixError


def resume(
    folder: Annotated[Path, typer.Argument(help="Folder of the stopped run.", metavar="DIR")],
) -> None:
    """Continue a run, comparison, search or figure that was stopped; the result is the same bit for
    bit."""
    from scafflix.cli.work import work
    from scafflix.runs.workfolder import unfinished

    folder = folder.absolute()
    asked = unfinished(folder)
    try:
        os.chdir(asked.directory)  # files are named as they were
    except OSError as error:
        raise ScafflixError(
            f"{folder} was started in {asked.directory}, which cannot be opened: {error.strerror}."
        ) from None
    work(asked, folder)
