"""Checks of numbers that users pass, each answered with one sentence."""

from __future__ import annotations

import math
import operator
from typing import SupportsFloat, SupportsIndex

from scafflix.errors import ScafflixError


def whole_number(name: str, value: object, *, least: int) -> int:
    """The value as an int of at least ``least``.

    >>> whole_number("clients", 8, least=1)
    8
    >>> whole_number("clients", 0, least=1)
    Traceback (most recent call last):
    scafflix.errors.ScafflixError: clients is 0; give a whole number of at least 1.
    """
    # bool is an int in Python, yet clients=True is a slip of the caller.
    if isinstance(value, SupportsIndex) and not isinstance(value, bool):
        number = operator.index(value)
        if number >= least:
            return number
    raise ScafflixError(f"{name} is {value!r}; give a whole number of at least {least}.")


def real_number(
    name: str,
    value: object,
    *,
    least: float = 0.0,
    above: bool = False,
    below: float = math.inf,
) -> float:
    """The value as a finite float in ``[least, below)``, or ``(least, below)`` if ``above``.

    >>> real_number("test", 0.25, below=1.0)
    0.25
    >>> real_number("beta", 0.0, above=True)
    Traceback (most recent call last):
    scafflix.errors.ScafflixError: beta is 0.0; give a finite number above 0.
    """
    if isinstance(value, SupportsFloat) and not isinstance(value, bool):
        try:
            number = float(value)
        except (TypeError, ValueError, OverflowError):
            number = math.nan
        high_enough = number > least if above else number >= least
        if high_enough and number < below:  # false for NaN; below excludes infinity
            return number
    bound = f"{'above' if above else 'of at least'} {least:g}"
    if below < math.inf:
        bound += f" and below {below:g}"
    raise ScafflixError(f"{name} is {value!r}; give a finite number {bound}.")
