"""The tables of the pages, made anew from what `scafflix reproduce` wrote: python docs/tables.py

A table on a page stands between two comments, which a browser does not show. The first says, in
TOML, from which file in docs/results/ and by which selection it is made:

    <!-- table
    file = "rivals"                       # results/rivals.md
    rows = ["alone", { name = "tuned", row = "FedAvg + fine-tuning" }]
    columns = [{ name = "heart", table = 0, column = "loss" }]
    -->
    ...
    <!-- end of table -->

A cell is found by a file, a table in it (by its number, or by how its title begins), a row and a
column (or several, joined by spaces); where a run diverged, the cell says so. What all cells share
stands at the top; the rest comes from the row and the column of the page that meet in the cell,
where the row wins. Without `rows` all rows of the file's table are taken, without `columns` all its
columns. Besides, for the whole table:

    corner = ""                           # what stands above the rows' names
    short = true                          # .25 for 0.25
    least = ["heart"]                     # columns of the page whose least number is bold
    most = []                             # ... whose largest number is
    least_in_rows = true                  # the least number of each row is
"""

from __future__ import annotations

import re
import tomllib
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

DOCS = Path(__file__).parent
PAGES = ("results.md", "choosing.md")
BLOCK = re.compile(r"<!-- table\n(.*?)-->\n(.*?)<!-- end of table -->", re.DOTALL)
NUMBER = re.compile(r"-?[\d,]*\.?\d+(?:e-?\d+)?")
Part = dict[str, Any]  # of what finds a cell, with the name that the page has for it


class Table(NamedTuple):
    """A table of a file: its columns, and its rows by their labels."""

    title: str
    columns: list[str]
    rows: dict[str, list[str]]


@cache
def tables(file: str) -> list[Table]:
    """The tables of a file of results, in order."""
    found: list[Table] = []
    title, inside = "", False
    for line in (DOCS / "results" / f"{file}.md").read_text().splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if not line.startswith("|"):
            title, inside = line.strip("*") if line.startswith("**") else title, False
        elif not inside:
            inside = True
            found.append(Table(title, cells[1:], {}))
        elif set(line) != set("|-"):
            label, sign, fate = cells[0].partition(" (diverged")
            found[-1].rows[label] = [cell and cell + sign + fate for cell in cells[1:]]
    return found


def table_of(part: Part) -> Table:
    """By its number, or by how its title begins."""
    every, which = tables(part["file"]), part.get("table", 0)
    if isinstance(which, int):
        return every[which]
    (found,) = [one for one in every if one.title.startswith(which)]
    return found


def cell(part: Part) -> str | None:
    """None if the table has no such row."""
    table = table_of(part)
    columns = part["column"] if isinstance(part["column"], list) else [part["column"]]
    row = table.rows.get(part["row"])
    return row and " ".join(row[table.columns.index(column)] for column in columns)


def made(words: str) -> str:
    """The table that a comment asks for.

    >>> print(made('file = "fig3c"\\ncolumns = ["personal"]\\nrows = ["p = 0.5"]\\n'), end="")
    | | personal |
    |---|---|
    | p = 0.5 | 79.4 |
    """
    asked = tomllib.loads(words)
    shared: Part = {key: asked[key] for key in ("file", "table", "row", "column") if key in asked}
    columns = [_part(one, "column") for one in asked.get("columns") or table_of(shared).columns]
    rows = [_part(one, "row") for one in asked.get("rows") or _labels({**shared, **columns[0]})]
    lines = []
    for row in rows:
        found = [cell({**shared, **column, **row}) for column in columns]
        if not any(one is not None for one in found):
            raise SystemExit(f"results/{asked.get('file')}.md has no row for {row}")
        lines.append([one or "" for one in found])
    if asked.get("short"):
        lines = [[re.sub(r"\b0\.(?=\d\d)", ".", one) for one in line] for line in lines]
    names = [column["name"] for column in columns]
    across, down = range(len(names)), range(len(lines))
    for way in ("least", "most"):
        for j in across:
            if names[j] in asked.get(way, ()):
                _mark(lines, [(i, j) for i in down], way)
    for i in down if asked.get("least_in_rows") else ():
        _mark(lines, [(i, j) for j in across], "least")
    head = [asked.get("corner", ""), *names]
    body = [[row["name"], *line] for row, line in zip(rows, lines, strict=True)]
    return "\n".join([_line(head), "|" + "---|" * len(head), *map(_line, body)]) + "\n"


def _part(given: str | Part, key: str) -> Part:
    """A word is the name, and the row or the column that is called so."""
    return {"name": given, key: given} if isinstance(given, str) else given


def _labels(part: Part) -> list[str]:
    return list(table_of(part).rows)


def _mark(lines: list[list[str]], places: list[tuple[int, int]], way: str) -> None:
    """In bold the best of the numbers with which cells begin, and of those after a slash."""
    parts = {place: lines[place[0]][place[1]].split(" / ") for place in places}
    for k in range(max(map(len, parts.values()))):
        numbers = {
            place: float(match[0].replace(",", ""))
            for place, words in parts.items()
            if k < len(words) and (match := NUMBER.match(words[k]))
        }
        best = (min if way == "least" else max)(numbers.values())
        for place, number in numbers.items():
            if number == best:
                parts[place][k] = f"**{parts[place][k]}**"
    for (i, j), words in parts.items():
        lines[i][j] = " / ".join(words)


def _line(cells: list[str]) -> str:
    return "|" + "|".join(f" {cell} " if cell else " " for cell in cells) + "|"


def renewed(page: str) -> str:
    """A page with its tables made anew."""
    return BLOCK.sub(
        lambda m: f"<!-- table\n{m[1]}-->\n\n{made(m[1])}\n<!-- end of table -->", page
    )


def main() -> None:
    for name in PAGES:
        page = DOCS / name
        page.write_text(renewed(page.read_text()))


if __name__ == "__main__":
    main()
