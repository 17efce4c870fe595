"""The `scafflix` command: arguments and files to objects, errors to sentences."""

from __future__ import annotations

import sys

import typer

from scafflix.cli import data, runs
from scafflix.cli.display import ERR, warnings_as_sentences
from scafflix.errors import ScafflixError

app = typer.Typer(
    help="Personalized federated learning that communicates rarely.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)
app.command()(runs.demo)
app.command()(runs.run)
app.command()(runs.compare)
app.command()(runs.plan)
app.command()(runs.reproduce)
app.add_typer(data.app, name="data")


def main() -> None:
    """Run the command; what a user can mend is one sentence and exit code 2."""
    try:
        with warnings_as_sentences():
            app()
    except ScafflixError as error:
        ERR.print(f"[red]error:[/red] {error}", soft_wrap=True, markup=True)
        sys.exit(2)
    except KeyboardInterrupt:
        ERR.print("stopped; nothing was written")
        sys.exit(130)
