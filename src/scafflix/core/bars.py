"""How far a run is, where it was started from Python: a bar in a notebook, or in a terminal."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from html import escape
from typing import Any

from scafflix.core.arguments import shown
from scafflix.core.errors import ScafflixError
from scafflix.core.progress import Progress, Standing

BETWEEN = 0.2  # seconds between two pictures of a bar in a notebook


def in_notebook() -> bool:
    """Whether a kernel of Jupyter runs this; found out without importing anything."""
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    return shell is not None and hasattr(shell, "kernel")


@contextmanager
def watched(progress: Progress | bool | None) -> Iterator[Progress | None]:
    """Whom a run reports to: a function, a bar (True, or None in a notebook), or nobody."""
    if callable(progress):
        yield progress
    elif progress is not None and not isinstance(progress, bool):
        raise ScafflixError(
            f"progress is {shown(progress)}; give True, False, a function, or None."
        )
    elif in_notebook() and progress is not False:
        bar = NotebookBar()
        try:
            yield bar
        finally:
            bar.close()
    elif progress:
        with _in_terminal() as report:
            yield report
    else:
        yield None


class NotebookBar:
    """A bar in the output of a cell, which follows the run and stays as it was at the end."""

    def __init__(self) -> None:
        from IPython.display import display

        self._began, self._shown = time.monotonic(), 0.0
        self._state: tuple[int, int, Standing | str] = (0, 1, "starting")
        self._handle = display(self._picture(), display_id=True)  # type: ignore[no-untyped-call]

    def __call__(self, done: int, total: int, state: Standing | str) -> None:
        self._state = done, total, state
        if done == total or time.monotonic() - self._shown >= BETWEEN:
            self.close()

    def close(self) -> None:
        """Show how it stands."""
        self._shown = time.monotonic()
        self._handle.update(self._picture())

    def _picture(self) -> Any:
        from IPython.display import HTML

        done, total, state = self._state
        seconds = time.monotonic() - self._began
        words = escape(f"{done}/{total} rounds, {state}, {seconds:.1f} s")
        return HTML(  # type: ignore[no-untyped-call]
            f"<progress value='{done}' max='{total}' style='width:20em'></progress> {words}"
        )


@contextmanager
def _in_terminal() -> Iterator[Progress]:
    from rich.console import Console
    from rich.progress import Progress as Bars
    from rich.progress import TextColumn, TimeElapsedColumn

    columns = (
        *Bars.get_default_columns()[:2],
        TextColumn("{task.completed:g}/{task.total:g} {task.fields[state]}", markup=False),
        TimeElapsedColumn(),
    )
    with Bars(*columns, console=Console(stderr=True)) as bars:
        task = bars.add_task("rounds", total=1, state="starting")

        def report(done: int, total: int, state: Standing | str) -> None:
            bars.update(task, completed=done, total=total, state=str(state))

        yield report
