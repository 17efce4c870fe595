"""Command-line options from the keys of a configuration, so that both are declared once."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer

from scafflix.config import read

ALIASES = {"methods": ("--method",), "alphas": ("--alpha",)}
NETWORKS = "Networks: "  # how the help of their keys begins
METAVARS = {int: "N", float: "NUMBER", int | None: "N", float | None: "NUMBER"}


def configured(kind: type[Any]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Turn ``function(config, **own)`` into a command that takes FILE, every key of the
    configuration as an option, ``--set key=value``, and the function's own options."""

    def decorate(function: Callable[..., None]) -> Callable[..., None]:
        names = [entry.name for entry in fields(kind)]

        def command(**values: Any) -> None:
            given = {name: values.pop(name) for name in names}
            config = read(kind, values.pop("file"), given, values.pop("assignments"))
            function(config, **values)

        own = list(inspect.signature(function, eval_str=True).parameters.values())[1:]
        parameters = [_FILE, *_options(kind), _SET, *own]
        command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        command.__annotations__ = {entry.name: entry.annotation for entry in parameters}
        command.__doc__ = function.__doc__
        command.__name__ = function.__name__
        return command

    return decorate


def _parameter(name: str, annotation: Any, default: Any) -> inspect.Parameter:
    return inspect.Parameter(
        name, inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=annotation, default=default
    )


def _options(kind: type[Any]) -> list[inspect.Parameter]:
    hints = get_type_hints(kind)
    return [
        _parameter(entry.name, _annotation(entry, hints[entry.name]), None)
        for entry in fields(kind)
    ]


def _annotation(entry: Any, hint: Any) -> Any:
    flag = "--" + entry.name.replace("_", "-")
    help, panel = entry.metadata["help"], None
    if help.startswith(NETWORKS):
        help = help.removeprefix(NETWORKS)
        help, panel = help[0].upper() + help[1:], "Networks"
    if hint is bool:
        names = f"{flag}/--no-{flag[2:]}"
        return Annotated[bool | None, typer.Option(names, help=help, rich_help_panel=panel)]
    default = entry.default
    if isinstance(default, tuple):
        default = ",".join(map(str, default))
    if isinstance(default, str | int | float):
        help = f"{help} [dim]\\[default: {default}][/dim]"
    # words, whatever the key's type: the configuration converts them and says what is wrong
    return Annotated[
        str | None,
        typer.Option(
            flag,
            *ALIASES.get(entry.name, ()),
            help=help,
            metavar=METAVARS.get(hint, "TEXT"),
            rich_help_panel=panel,
        ),
    ]


_FILE = _parameter(
    "file",
    Annotated[Path | None, typer.Argument(help="A TOML file with the same keys.", metavar="FILE")],
    None,
)
_SET = _parameter(
    "assignments",
    Annotated[
        list[str],
        typer.Option("--set", help="Set a key of the configuration.", metavar="KEY=VALUE"),
    ],
    [],
)
