"""A table of words, for the terminal, a page or a file."""

from __future__ import annotations

from typing import NamedTuple

from rich.box import SIMPLE_HEAD
from rich.table import Table as RichTable


class Table(NamedTuple):
    """A title, a header and rows of words."""

    title: str
    header: tuple[str, ...]
    rows: list[tuple[str, ...]]

    def on_terminal(self) -> RichTable:
        table = RichTable(
            title=self.title,
            title_justify="left",
            header_style="bold",
            box=SIMPLE_HEAD,
            padding=(0, 1, 0, 0),
            pad_edge=False,
        )
        for number, name in enumerate(self.header):
            table.add_column(name, justify="left" if number == 0 else "right", no_wrap=True)
        for row in self.rows:
            table.add_row(*row)
        return table

    @property
    def markdown(self) -> str:
        """For a file.

        >>> print(Table("Rounds", ("method", "rounds"), [("gd", "52")]).markdown)
        **Rounds**
        <BLANKLINE>
        | method | rounds |
        |---|---|
        | gd | 52 |
        """
        lines = [self.header, *self.rows]
        header, *rows = ["| " + " | ".join(line) + " |" for line in lines]
        return "\n".join([f"**{self.title}**", "", header, "|" + "---|" * len(self.header), *rows])
