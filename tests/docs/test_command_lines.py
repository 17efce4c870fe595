"""Every command in the README and the docs is one that the command line knows."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
import typer
from pages import PAGES, ROOT, shown_commands, words_in_code

from scafflix.cli import app

COMMAND = typer.main.get_command(app)


def parse(line: str) -> None:
    """Let the command's own parser read the line; nothing is run."""
    words = [word for word in shlex.split(line)[1:] if word != "--help"]
    command = COMMAND
    while isinstance(command, click.Group):
        if not words:
            raise click.MissingParameter(param_type="command")
        name = words.pop(0)
        if name not in command.commands:
            raise click.UsageError(f"No such command {name!r}.")
        command = command.commands[name]
    command.make_context(command.name, words)


def options(command: click.Command) -> Iterator[str]:
    """The names of all options, of subcommands too."""
    for parameter in command.params:
        yield from (*parameter.opts, *parameter.secondary_opts)
    if isinstance(command, click.Group):
        for other in command.commands.values():
            yield from options(other)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_commands_on_lines_of_their_own_are_complete(page: Path) -> None:
    for line in shown_commands(page):
        parse(line)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_commands_in_sentences_have_options_that_exist(page: Path) -> None:
    for words in words_in_code(page):
        if words.startswith("scafflix "):
            try:
                parse(words)
            except click.BadParameter:  # a part of a command, or a word like FIGURE in it
                continue


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_options_in_sentences_exist(page: Path) -> None:
    known = {*options(COMMAND), "--help", "--json", "--quiet"}  # every command has these
    for words in words_in_code(page):
        if words.startswith("--"):
            assert words.split()[0].split("=")[0] in known, words


def test_the_guide_names_every_command() -> None:
    guide = words_in_code(ROOT / "docs" / "guide.md")
    for name in COMMAND.commands:
        assert f"scafflix {name}" in guide, name


def test_an_option_or_command_that_does_not_exist_is_found() -> None:
    for line in ("scafflix run --data digits --nonsense 3", "scafflix fly"):
        with pytest.raises(click.UsageError, match=r"[Nn]o such"):
            parse(line)
