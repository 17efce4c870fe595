"""The hospitals of the UCI Heart Disease data: a folder of files ``...processed.NAME.data``.

They are prepared as in FLamby's Fed-Heart-Disease: of 13 columns the three that most hospitals left
empty are dropped, then the patients with a missing value; kinds of chest pain and of ECG become
indicators, all but the first. The label is 1 for a patient with heart disease.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from scafflix.core.errors import ScafflixError
from scafflix.data.federation import Features, Labels
from scafflix.data.parts import Budget, Parts

PATTERN = "*processed.*.data"
COLUMNS = 14  # the last one is the label
KEPT = 10  # columns before those that are dropped
KINDS = {2: (2, 3, 4), 6: (1, 2)}  # chest pain and ECG, without their first kind
MISSING = ("?", "-9", "-9.0", "")


def files_in(folder: Path) -> list[Path]:
    """The files of the hospitals."""
    return sorted(folder.glob(PATTERN))


def read_hospitals(folder: Path) -> Parts:
    """The hospitals of the folder; it has no test part."""
    budget = Budget(folder)
    return Parts(
        {path.name.split(".")[-2]: read_patients(path, budget) for path in files_in(folder)}
    )


def read_patients(path: Path, budget: Budget) -> tuple[Features, Labels]:
    """Features and labels of one hospital's patients."""
    try:
        budget.spend(path.stat().st_size)
        lines = path.read_text(encoding="ascii").splitlines()
    except OSError as error:
        raise ScafflixError(f"{path}: cannot be read ({error.strerror}).") from error
    except UnicodeDecodeError:
        raise ScafflixError(f"{path}: is not text; give the file as it was published.") from None
    rows = []
    for number, line in enumerate(lines, start=1):
        words = [word.strip() for word in line.split(",")]
        if number == 1 and words[0].startswith("X"):  # a header
            continue
        if len(words) != COLUMNS:
            raise ScafflixError(
                f"{path}, line {number}: {len(words)} columns; there must be {COLUMNS}."
            )
        wanted = [*words[:KEPT], words[-1]]
        if any(word in MISSING for word in wanted):
            continue
        try:
            rows.append([float(word) for word in wanted])
        except ValueError:
            raise ScafflixError(f"{path}, line {number}: there is a word; give numbers.") from None
    table = np.array(rows).reshape(-1, KEPT + 1)
    if not np.isfinite(table).all():
        raise ScafflixError(f"{path}: a number is not finite; leave out its patient.")
    amounts = np.delete(table[:, :KEPT], list(KINDS), axis=1)
    indicators = [table[:, column, None] == kinds for column, kinds in KINDS.items()]
    return np.hstack([amounts, *indicators]), (table[:, -1] > 0).astype(int)
