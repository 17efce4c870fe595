"""Command-line options from the keys of a configuration, so that both are declared once."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer

from scafflix.core.errors import ScafflixError
from scafflix.runs.config import assigned, read

ALIASES = {"methods": ("--method",), "alphas": ("--alpha",)}
METAVARS = {int: "N", float: "NUMBER", int | None: "N", float | None: "NUMBER"}


def configured(
    kind: type[Any],
    unread: tuple[str, ...] = (),
    also: Mapping[str, str] | None = None,
    read_with: Mapping[str, str] | None = None,
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Turn ``function(config, **own)`` into a command that takes FILE, every key of the
    configuration as an option, ``--set key=value``, and the function's own options.

    Keys that the command does not read are refused, unless they stand in the file, which may be
    the one of a run; so are those that it reads only together with another one (`read_with`).
    `also` has another name for the option of a key.
    """

    def decorate(function: Callable[..., None]) -> Callable[..., None]:
        names = [entry.name for entry in fields(kind)]

        def command(**values: Any) -> None:
            given = {name: values.pop(name) for name in names}
            assignments = values.pop("assignments")
            for name in unread:
                if given[name] is not None or name in assigned(assignments):
                    raise ScafflixError(
                        f"{name} is for runs; {function.__name__} does not read it. Leave it out."
                    )
            config = read(kind, values.pop("file"), given, assignments)
            for name, other in (read_with or {}).items():
                asked = given[name] is not None or name in assigned(assignments)
                if asked and getattr(config, other) == getattr(kind, other):
                    raise ScafflixError(
                        f"{name} is for runs; {function.__name__} reads it only with {other}. "
                        "Leave it out."
                    )
            function(config, **values)

        own = list(inspect.signature(function, eval_str=True).parameters.values())[1:]
        parameters = [_FILE, *_options(kind, unread, also or {}), _SET, *own]
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


def _options(
    kind: type[Any], unread: tuple[str, ...], also: Mapping[str, str]
) -> list[inspect.Parameter]:
    hints, made = get_type_hints(kind), []
    for entry in fields(kind):
        name = entry.name
        others = (also[name],) if name in also else ALIASES.get(name, ())
        annotation = _annotation(entry, hints[name], name in unread, others)
        made.append(_parameter(name, annotation, None))
    return made


def _annotation(entry: Any, hint: Any, hidden: bool, others: tuple[str, ...]) -> Any:
    flag = "--" + entry.name.replace("_", "-")
    help, only = entry.metadata["help"], entry.metadata["only"]
    panel = None if only is None else f"For {only}"
    shown: dict[str, Any] = {"rich_help_panel": panel, "hidden": hidden}
    if hint in (bool, bool | None):
        names = f"{flag}/--no-{flag[2:]}"
        return Annotated[bool | None, typer.Option(names, help=help, **shown)]
    default = entry.default
    if isinstance(default, tuple):
        default = ",".join(map(str, default)) or None
    if isinstance(default, str | int | float):
        help = f"{help} [dim]\\[default: {default}][/dim]"
    # words, whatever the key's type: the configuration converts them and says what is wrong
    return Annotated[
        str | None,
        typer.Option(
            flag,
            *others,
            help=help,
            metavar=METAVARS.get(hint, "TEXT"),
            **shown,
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
