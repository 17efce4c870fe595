"""Tables of a search for stepsizes."""

from __future__ import annotations

import csv
import math
from pathlib import Path

from scafflix.report.table import Table
from scafflix.report.tables import KINDS
from scafflix.runs.tuning import Tuned, best, score


def grid(tuned: Tuned) -> Table:
    """Validation scores, a row a stepsize and a column a method; the best is marked."""
    methods = list(tuned.winners)
    stepsizes = sorted({float(cell.stepsize) for cell in tuned.cells})
    found = {(cell.method, float(cell.stepsize)): cell for cell in tuned.cells}
    chosen = {
        method: best([cell for cell in tuned.cells if cell.method == method], tuned.metric)
        for method in methods
    }

    def word(method: str, stepsize: float) -> str:
        cell = found[method, stepsize]
        if not math.isfinite(cell.score):
            return "diverged" if cell.diverged is None else f"diverged at {cell.diverged}"
        return f"{cell.score:.4g}{' *' if cell == chosen[method] else ''}"

    rows = [(f"{rate:g}", *(word(method, rate) for method in methods)) for rate in stepsizes]
    return Table(f"Validation {tuned.metric} by stepsize", ("stepsize", *methods), rows)


def winners(tuned: Tuned) -> Table:
    """The winners on the test data, seen for the first time."""
    rows = []
    for method, record in tuned.winners.items():
        known = "test_personal" in record.clients
        words = [
            f"{score(record, 'test', kind):.4g}"
            if known and f"test_{kind}" in record.clients
            else ""
            for kind in KINDS
        ]
        rows.append((method, f"{record.config['stepsize']:g}", *words))
    return Table(f"Test {tuned.metric} of the winners", ("method", "stepsize", *KINDS), rows)


def write_csv(tuned: Tuned, path: Path) -> None:
    """Every cell of the grid."""
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["method", "stepsize", f"validation_{tuned.metric}", "diverged_at"])
        for cell in tuned.cells:
            score = cell.score if math.isfinite(cell.score) else ""
            writer.writerow([cell.method, cell.stepsize, score, cell.diverged or ""])
