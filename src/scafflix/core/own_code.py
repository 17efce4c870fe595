"""Where a user's own function went wrong."""

from __future__ import annotations

import traceback
from pathlib import Path

from scafflix.core.errors import ScafflixError, reason_of

PACKAGE = str(Path(__file__).parents[1])


def fault_in(error: BaseException, what: str) -> ScafflixError:
    """What went wrong in a user's own function, in one sentence with its file and line.

    >>> def mean(numbers):
    ...     return sum(numbers) / len(numbers)
    >>> try:
    ...     mean([])
    ... except ZeroDivisionError as error:
    ...     print(fault_in(error, "on_round failed"))
    <doctest ..., line 2: on_round failed: division by zero (ZeroDivisionError).
    """
    frames = traceback.extract_tb(error.__traceback__)
    own = [
        one
        for one in frames
        if not one.filename.startswith(PACKAGE) and "site-packages" not in one.filename
    ]
    kind, said = type(error).__name__, reason_of(error)
    said = said if said == kind else f"{said} ({kind})"
    if not own:
        return ScafflixError(f"{what}: {said}.")
    here, file = Path.cwd(), Path(own[-1].filename)
    name = str(file.relative_to(here)) if file.is_relative_to(here) else own[-1].filename
    return ScafflixError(f"{name}, line {own[-1].lineno}: {what}: {said}.")
