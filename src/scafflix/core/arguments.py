"""Checks of what users pass, each answered with one sentence: what it is, what it must be."""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from os import PathLike
from pathlib import Path
from types import BuiltinFunctionType, FunctionType
from typing import Any, SupportsFloat, SupportsIndex, TypeVar

import numpy as np
from numpy.typing import NDArray

from scafflix.core.errors import ScafflixError

Kind = TypeVar("Kind")

LARGEST = 2**63 - 1
"""What an array of integers can hold."""

LONGEST_NAME = 255
"""Bytes of the name of a file or folder."""

QUOTED = (str, bytes, int, float, complex, list, tuple, dict, set, Path, type(None))
"""Types whose values say more than their names."""


def shown(value: object) -> str:
    """A value as a sentence quotes it.

    >>> shown("3"), shown(np.zeros((4, 1))), shown(shown)
    ("'3'", 'an array of shape (4, 1)', 'the function shown')
    """
    if isinstance(value, type):
        return f"the class {value.__name__}"
    if isinstance(value, FunctionType | BuiltinFunctionType):
        return f"the function {value.__name__}"
    value = value.item() if isinstance(value, np.generic) else value
    if isinstance(value, QUOTED) and not hasattr(value, "_fields"):
        try:
            return repr(value)
        except (ValueError, RecursionError):  # of more digits, or deeper, than Python writes
            pass
    shape = getattr(value, "shape", None)
    kind = type(value).__name__
    article = "an" if kind[0] in "AEIOUaeio" else "a"
    if isinstance(shape, tuple):
        return f"an array of shape {shape}"
    return f"{article} {kind}"


def whole_number(name: str, value: object, *, least: int, most: int = LARGEST) -> int:
    """The value as an int of at least ``least`` and at most ``most``.

    >>> whole_number("clients", 8, least=1)
    8
    >>> whole_number("clients", 0, least=1)
    Traceback (most recent call last):
    scafflix.core.errors.ScafflixError: clients is 0; give a whole number of at least 1.
    """
    too_large = False
    # bool is an int in Python, yet clients=True is a slip of the caller.
    if isinstance(value, SupportsIndex) and not isinstance(value, bool | np.bool_):
        try:
            number = operator.index(value)
        except TypeError:  # an array of several, or of other numbers
            number = least - 1
        if least <= number <= most:
            return number
        too_large = number > most
    bound = f"of at least {least}"
    if too_large or most < LARGEST:
        bound += f" and at most {most}"
    raise ScafflixError(f"{name} is {shown(value)}; give a whole number {bound}.")


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
    scafflix.core.errors.ScafflixError: beta is 0.0; give a finite number above 0.
    """
    if isinstance(value, SupportsFloat) and _is_one_number(value):
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
    raise ScafflixError(f"{name} is {shown(value)}; give a finite number {bound}.")


def _is_one_number(value: Any) -> bool:
    """Not a truth value, not complex, not an array with axes."""
    if isinstance(value, bool | np.bool_):
        return False
    kind = getattr(value, "dtype", None)
    return getattr(value, "shape", ()) == () and (kind is None or np.dtype(kind).kind in "iuf")


def numbers(
    name: str, value: object, shape: tuple[int, ...] | None = None, *, finite: bool = True
) -> NDArray[np.float64]:
    """The value, an array or nested lists, as finite numbers of a shape.

    >>> numbers("start", [1, 2], (2,))
    array([1., 2.])
    >>> numbers("start", [1, 2], (3,))
    Traceback (most recent call last):
    scafflix.core.errors.ScafflixError: start has the shape (2,); it must be (3,).
    """
    try:
        array = np.asarray(value)
    except Exception:  # whatever an object of another library raises
        array = np.array(None)
    if array.dtype.kind not in "biuf":
        raise ScafflixError(f"{name} is {shown(value)}; give an array of numbers.")
    if shape is not None and array.shape != shape:
        raise ScafflixError(f"{name} has the shape {array.shape}; it must be {shape}.")
    with np.errstate(over="ignore"):
        converted = array.astype(np.float64, copy=False)
    if finite and not np.isfinite(converted).all():
        bad = converted[~np.isfinite(converted)][0]
        raise ScafflixError(f"{name} holds {bad}; give finite numbers.")
    return converted


def choice(name: str, value: object, allowed: Sequence[str]) -> str:
    """The value as one of a few words.

    >>> choice("part", "tests", ("test", "validation"))
    Traceback (most recent call last):
    scafflix.core.errors.ScafflixError: part is 'tests'; it must be test or validation.
    """
    if isinstance(value, str) and value in allowed:
        return value
    words = " or ".join(filter(None, (", ".join(allowed[:-1]), allowed[-1])))
    raise ScafflixError(f"{name} is {shown(value)}; it must be {words}.")


def flag(name: str, value: object) -> bool:
    """The value as True or False."""
    if isinstance(value, bool | np.bool_):
        return bool(value)
    raise ScafflixError(f"{name} is {shown(value)}; it must be True or False.")


def path_of(name: str, value: object) -> Path:
    """The value as a path that a file can have."""
    if isinstance(value, str | PathLike):
        text = value if isinstance(value, str) else value.__fspath__()
        if isinstance(text, str) and text and "\0" not in text:
            made = Path(text)
            if all(len(part.encode(errors="replace")) <= LONGEST_NAME for part in made.parts):
                return made
    raise ScafflixError(f"{name} is {shown(value)}; give a path.")


def instance(name: str, value: object, kind: type[Kind], wanted: str) -> Kind:
    """The value, if it is what stands in this place; `wanted` tells how to come by one.

    >>> instance("model", shown, dict, "a model")
    Traceback (most recent call last):
    scafflix.core.errors.ScafflixError: model is the function shown; give a model.
    """
    if isinstance(value, kind):
        return value
    raise ScafflixError(f"{name} is {shown(value)}; give {wanted}.")


def check_functions(name: str, value: object, functions: Sequence[str]) -> None:
    """Refuse an object of which some field is no function, or whose names are no text."""
    for field in functions:
        if not callable(getattr(value, field, None)):
            given = shown(getattr(value, field, None))
            raise ScafflixError(f"{name} has {given} as its {field}; give a function.")
    for field in ("name", "metric"):
        instance(f"The {field} of a model", getattr(value, field), str, "text")
