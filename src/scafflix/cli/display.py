"""What commands say: to a person at a terminal, to a log, or to a script."""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    SpinnerColumn,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Table as RichTable
from rich.text import Text

from scafflix.core.errors import ScafflixWarning
from scafflix.core.progress import Progress as Report
from scafflix.core.progress import Standing
from scafflix.report.table import Table

# what is printed may hold any text a user typed: no markup in it
OUT = Console(highlight=False, markup=False)
ERR = Console(stderr=True, highlight=False, markup=False)
WIDEST = 1000  # characters of a line that is not for a terminal
BETWEEN_LINES = 10.0  # seconds, where the output is not a terminal


@dataclass
class Manner:
    """How to speak, and for a script what there is to say, in one piece at the end."""

    quiet: bool = False
    json: bool = False
    said: dict[str, Any] = field(default_factory=dict)

    def clear(self) -> None:
        """As at the start of a command."""
        self.quiet = self.json = False
        self.said = {}

    @property
    def words(self) -> bool:
        """Whether a person reads the results."""
        return not (self.quiet or self.json)


MANNER = Manner()


def show(table: Table) -> None:
    """A table of results."""
    if MANNER.words:
        made = table.on_terminal()
        if not OUT.is_terminal:  # a file or a pipe is as wide as the table
            made.width = OUT.measure(made, options=OUT.options.update(max_width=WIDEST)).maximum
        OUT.print(made, crop=False)
    rows = [dict(zip(table.header, row, strict=True)) for row in table.rows]
    MANNER.said.setdefault("tables", {})[table.title] = rows


def show_facts(title: str, facts: Mapping[str, Any]) -> None:
    """Names and values."""
    if MANNER.words:
        table = RichTable(title=title, title_justify="left", show_header=False, box=SIMPLE_HEAD)
        for name, value in facts.items():
            table.add_row(name, in_words(value))
        OUT.print(table)
    MANNER.said.setdefault("facts", {})[title] = dict(facts)


def wrote(what: str, path: Path) -> None:
    """Where a result is."""
    if MANNER.words:
        OUT.print(f"{what}: {path}", soft_wrap=True)
    MANNER.said.setdefault("files", {})[what] = str(path)


def conclusion(*sentences: str, **numbers: Any) -> None:
    """What it comes to, in a sentence or two; for a script, also the numbers in them."""
    if MANNER.words:
        for sentence in sentences:
            OUT.print(sentence, soft_wrap=True)
    if sentences:
        MANNER.said |= {"conclusion": " ".join(sentences), **numbers}


def in_words(value: Any) -> str:
    """A value in a table."""
    if value is None or value != value:
        return "none"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def tell(kind: str, sentence: str) -> None:
    """One sentence for the user that nothing depends on."""
    if not MANNER.quiet:
        say(kind, "green", sentence)


def say(kind: str, colour: str, sentence: str) -> None:
    """One sentence for the user, on the side of the output."""
    ERR.print(Text.assemble((f"{kind}: ", colour), sentence), soft_wrap=True)


def conclude() -> None:
    """What a script gets: one JSON object."""
    if MANNER.json:
        from scafflix.core.as_json import to_json

        print(to_json(MANNER.said))


@contextmanager
def progress(*titles: str) -> Iterator[list[Report]]:
    """How far each title is: bars on a terminal, else now and then a line."""
    live = ERR.is_terminal and not MANNER.quiet
    bars = Progress(
        SpinnerColumn(),
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=20),
        TextColumn("{task.completed:g}/{task.total:g}"),
        TextColumn("{task.fields[state]}", markup=False),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
        console=ERR,
        transient=True,
        disable=not live,
    )
    with bars:
        yield [_Reporter(bars, bars.add_task(title, total=1, state=""), title) for title in titles]


class _Reporter:
    """The progress of one title."""

    def __init__(self, bars: Progress, task: TaskID, title: str) -> None:
        self._bars, self._task, self._title = bars, task, title
        self._began = self._last = time.monotonic()
        self._first: tuple[float, int] | None = None  # when, and how many client-steps
        bars.update(task, state="data, local optima, compiling")

    def __call__(self, done: int, total: int, state: Standing | str) -> None:
        now = time.monotonic()
        words = f"{state}{self._speed(now, state)}"
        self._bars.update(self._task, completed=done, total=total, state=words)
        if self._bars.disable and not MANNER.quiet and now - self._last >= BETWEEN_LINES:
            self._last = now
            elapsed = now - self._began
            ERR.print(f"{self._title}: {done}/{total}, {words}, {elapsed:.0f} s", soft_wrap=True)

    def _speed(self, now: float, state: Standing | str) -> str:
        if not isinstance(state, Standing):
            self._first = None
            return ""
        if self._first is None or state.steps < self._first[1]:
            self._first = now, state.steps
        then, before = self._first
        if now - then < 1:
            return ""
        return f", {(state.steps - before) / (now - then):.3g} client-steps/s"


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
