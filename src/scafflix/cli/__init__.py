"""The `scafflix` command: arguments and files to objects, errors to sentences."""

from __future__ import annotations

import sys
from typing import Any

import click
import typer

from scafflix.cli import adapt, data, deploy, export, methods, predict, report, resume, runs
from scafflix.cli.display import MANNER, conclude, say, warnings_as_sentences
from scafflix.core.errors import ScafflixError, StopError

HELP = (
    "Personalized federated learning that communicates rarely.\n\n"
    "Every client keeps its data, finds a model of its own, and takes home a mixture of it and a "
    "common model. [bold]alpha[/bold] is the share of the common model in the mixture; "
    "[bold]p[/bold] is how often clients communicate.\n\n"
    "Start with [bold]scafflix demo[/bold], then [bold]scafflix run --data iris --model softmax "
    "--clients 3 --split shuffled --alpha 0.5[/bold]."
)
TRY, RUN, LOOK = "Start here", "Run", "Look at results"  # panels of the help

app = typer.Typer(
    help=HELP, no_args_is_help=True, pretty_exceptions_enable=False, rich_markup_mode="rich"
)
for command, panel in (
    (runs.demo, TRY),
    (runs.plan, TRY),
    (methods.methods, TRY),
    (runs.run, RUN),
    (runs.compare, RUN),
    (runs.tune, RUN),
    (runs.reproduce, RUN),
    (resume.resume, RUN),
    (adapt.adapt, RUN),
    (predict.predict, LOOK),
    (export.export, LOOK),
    (report.report, LOOK),
    (report.track, LOOK),
):
    app.command(rich_help_panel=panel)(command)
app.add_typer(data.app, name="data", rich_help_panel=TRY)
app.add_typer(deploy.app, name="deploy", rich_help_panel=RUN)

INTERRUPTED = 130


def main() -> None:
    """Run the command; an error that a user can fix is one sentence and exit code 2."""
    MANNER.clear()
    code = _run()
    conclude()
    sys.exit(code)


def _run() -> int:
    command = typer.main.get_command(app)
    _speak(command)
    try:
        with warnings_as_sentences():
            code = command(standalone_mode=False) or 0
    except StopError as error:
        folder = error.resumable
        kept = f"continue with: scafflix resume {folder}" if folder else "nothing was written"
        say("stopped", "yellow", kept)
        return 128 + error.signal
    except ScafflixError as error:
        MANNER.said["error"] = str(error)
        say("error", "red", str(error))
        return error.exit_code
    except click.ClickException as error:
        error.show()
        return error.exit_code
    if code == INTERRUPTED:
        say("stopped", "yellow", "nothing was written")
    return code


def _speak(command: click.Command) -> None:
    """Give every command the options of how to speak."""
    if isinstance(command, click.Group):
        for inner in command.commands.values():
            _speak(inner)
        return

    def choose(context: click.Context, option: click.Parameter, value: bool) -> None:
        if value and option.name is not None:
            setattr(MANNER, option.name, True)

    for name, help in (
        ("quiet", "Print nothing but errors."),
        ("json", "Print the results as one JSON object."),
    ):
        options: dict[str, Any] = {"is_flag": True, "expose_value": False, "callback": choose}
        command.params.append(
            typer.core.TyperOption(param_decls=[f"--{name}"], help=help, **options)
        )
