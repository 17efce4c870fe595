"""A table in LaTeX, with the lines of the package booktabs: cells, the best in bold, any text."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

NOTHING = "--"
SPECIAL = {c: rf"\{c}" for c in "&%$#_{}"} | {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    "α": r"$\alpha$",
}


class Cell(NamedTuple):
    """A mean, its spread where there are several values, and whether less of it is better."""

    mean: float
    spread: float | None = None
    falls: bool = False  # whether less is better
    decimals: int | None = None  # after the point; None for as many as the column needs


UNKNOWN = Cell(math.nan)


def in_bold(rows: Sequence[Sequence[Cell]]) -> list[list[str]]:
    """The cells in LaTeX, in each column the best in bold, unless all read the same."""
    return [list(row) for row in zip(*map(_column, zip(*rows, strict=True)), strict=True)]


def _column(cells: Sequence[Cell]) -> list[str]:
    known = {k: cell for k, cell in enumerate(cells) if math.isfinite(cell.mean)}
    digits = _decimals([*known.values()])
    made = {k: _number(cell, digits) for k, cell in known.items()}
    shown = {k: float(f"{cell.mean:.{digits}f}") for k, cell in known.items()}
    if len(set(shown.values())) > 1:
        falls = next(iter(known.values())).falls
        best = (min if falls else max)(shown.values())
        made |= {k: rf"\mathbf{{{made[k]}}}" for k, value in shown.items() if value == best}
    return [f"${made[k]}$" if k in made else NOTHING for k in range(len(cells))]


def _decimals(cells: Sequence[Cell]) -> int:
    """How many digits a column has after the point: as given, or so many that the least number has
    three in all."""
    for cell in cells:
        if cell.decimals is not None:
            return cell.decimals
    sizes = [abs(cell.mean) for cell in cells if cell.mean]
    return min(5, max(0, 2 - math.floor(math.log10(min(sizes))))) if sizes else 0


def _number(cell: Cell, digits: int) -> str:
    spread = "" if cell.spread is None else rf" \pm {cell.spread:.{digits}f}"
    return f"{cell.mean:.{digits}f}{spread}"


def power(number: float) -> str:
    """A number as papers write it.

    >>> power(2e-05)
    '$2 \\\\cdot 10^{-5}$'
    """
    digits, _, power = f"{number:g}".partition("e")
    if not power:
        return digits
    factor = "" if digits == "1" else rf"{digits} \cdot "
    return f"${factor}10^{{{int(power)}}}$"


def escaped(words: str) -> str:
    """Any text, so that LaTeX prints it.

    >>> escaped("50 % of a_b")
    '50 \\\\% of a\\\\_b'
    """
    return "".join(SPECIAL.get(letter, letter) for letter in " ".join(str(words).split()))


def table(
    caption: str, labels: str, head: Sequence[str], groups: Sequence[Sequence[Sequence[str]]]
) -> str:
    """The whole, for a document that uses booktabs."""
    shape = labels + "r" * (len(head) - len(labels))

    def line(cells: Sequence[str]) -> str:
        return "    " + " & ".join(cells) + r" \\"

    body: list[str] = []
    for rows in groups:
        body += [r"    \midrule", *map(line, rows)]
    return "\n".join(
        [
            r"% \usepackage{booktabs}",
            r"\begin{table}",
            r"  \centering",
            rf"  \caption{{{caption}}}",
            rf"  \begin{{tabular}}{{{shape}}}",
            r"    \toprule",
            line(head),
            *body,
            r"    \bottomrule",
            r"  \end{tabular}",
            r"\end{table}",
            "",
        ]
    )
