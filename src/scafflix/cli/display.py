"""What the terminal shows while something runs."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from scafflix.engine.run import Progress as Report
from scafflix.errors import ScafflixWarning

OUT = Console(highlight=False)
ERR = Console(stderr=True, highlight=False)


@contextmanager
def progress(title: str) -> Iterator[Report]:
    """A bar of rounds on the terminal; nothing where the output is not one."""
    bar = Progress(
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.completed:g}/{task.total:g} rounds"),
        TextColumn("{task.fields[state]}"),
        TimeElapsedColumn(),
        console=ERR,
        transient=True,
        disable=not ERR.is_terminal,
    )
    with bar:
        task = bar.add_task(title, total=1, state="data, local optima, compiling")

        def report(done: int, total: int, gap: float) -> None:
            bar.update(task, completed=done, total=total, state=f"gap {max(gap, 0.0):.1e}")

        yield report


def show_warning(message: Warning | str, category: type[Warning], *_: Any, **__: Any) -> None:
    """One yellow sentence for what theory does not cover."""
    if issubclass(category, ScafflixWarning):
        ERR.print(f"[yellow]warning:[/yellow] {message}", soft_wrap=True)


def install_warnings() -> None:
    """Show every warning of ours once, and nobody else's."""
    warnings.simplefilter("once", ScafflixWarning)
    warnings.showwarning = show_warning
