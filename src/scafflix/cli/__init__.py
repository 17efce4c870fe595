"""The `scafflix` command: arguments and files to objects, errors to sentences."""

from __future__ import annotations

import sys

import click
import typer

from scafflix.cli import data, deploy, runs
from scafflix.cli.display import say, warnings_as_sentences
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
app.command()(runs.tune)
app.command()(runs.reproduce)
app.add_typer(data.app, name="data")
app.add_typer(deploy.app, name="deploy")


INTERRUPTED = 130


def main() -> None:
    """Run the command; what a user can mend is one sentence and exit code 2."""
    try:
        with warnings_as_sentences():
            code = app(standalone_mode=False) or 0
    except ScafflixError as error:
        say("error", "red", str(error))
        code = 2
    except click.ClickException as error:
        error.show()
        code = error.exit_code
    if code == INTERRUPTED:
        say("stopped", "yellow", "nothing was written")
    sys.exit(code)
