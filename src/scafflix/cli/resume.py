"""`scafflix resume`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from scafflix.cli.runs import work
from scafflix.errors import ScafflixError
from scafflix.job import unfinished


def resume(
    folder: Annotated[Path, typer.Argument(help="Folder of what was stopped.", metavar="DIR")],
) -> None:
    """Go on with a run, comparison, search or figure that was stopped, bit for bit."""
    folder = folder.absolute()
    asked = unfinished(folder)
    try:
        os.chdir(asked.directory)  # files are named as they were
    except OSError as error:
        raise ScafflixError(
            f"{folder} was begun in {asked.directory}, which cannot be entered: {error.strerror}."
        ) from None
    work(asked, folder)
