"""What the terminal shows while something runs."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.text import Text

from scafflix.engine.run import Progress as Report
from scafflix.errors import ScafflixWarning

# what is printed may hold any text a user typed: no markup in it
OUT = Console(highlight=False, markup=False)
ERR = Console(stderr=True, highlight=False, markup=False)


@contextmanager
def progress(*titles: str) -> Iterator[list[Report]]:
    """A bar of rounds for each title on the terminal; nothing where the output is not one."""
    bar = Progress(
        SpinnerColumn(),
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TextColumn("{task.completed:g}/{task.total:g}"),
        TextColumn("{task.fields[state]}"),
        TimeElapsedColumn(),
        console=ERR,
        transient=True,
        disable=not ERR.is_terminal,
    )
    with bar:

        def reporter(title: str) -> Report:
            task = bar.add_task(title, total=1, state="data, local optima, compiling")

            def report(done: int, total: int, state: Any) -> None:
                words = state if isinstance(state, str) else f"gap {max(state, 0.0):.1e}"
                bar.update(task, completed=done, total=total, state=words)

            return report

        yield [reporter(title) for title in titles]


def say(kind: str, colour: str, sentence: str) -> None:
    """One sentence for the user, on the side of the output."""
    ERR.print(Text.assemble((f"{kind}: ", colour), sentence), soft_wrap=True)


@contextmanager
def warnings_as_sentences() -> Iterator[None]:
    """What theory does not cover in one yellow sentence each; other warnings are not shown."""

    def show(message: Warning | str, category: type[Warning], *_: Any, **__: Any) -> None:
        if issubclass(category, ScafflixWarning):
            say("warning", "yellow", str(message))

    with warnings.catch_warnings():
        warnings.simplefilter("always", ScafflixWarning)
        warnings.showwarning = show
        yield
