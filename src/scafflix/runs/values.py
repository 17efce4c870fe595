"""A value from a file, or a word from the command line, in the type of its key."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from scafflix.core.errors import ScafflixError
from scafflix.core.specs import number_or_word, separate

Auto = str | float  # a word or a number


def in_type(name: str, hint: Any, value: Any) -> Any:
    """The value of a key in the type that the key has.

    >>> in_type("rounds", int, "20"), in_type("p", Auto, "auto")
    (20, 'auto')
    """
    optional = {int | None: int, float | None: float, str | None: str, bool | None: bool}
    kind = optional.get(hint, hint)
    value = value.tolist() if hasattr(value, "tolist") else value
    value = str(value) if isinstance(value, Path) else value
    if kind in (tuple[str, ...], tuple[Any, ...]):
        parts = separate(value) if isinstance(value, str) else value
        if not isinstance(parts, list | tuple) or not parts:
            raise _unfit(name, value, "a list")
        part = str if kind == tuple[str, ...] else Any
        return tuple(in_type(name, part, entry) for entry in parts)
    if kind is Any and isinstance(value, list | tuple):
        return [in_type(name, Auto, entry) for entry in value]
    if kind is bool:
        if isinstance(value, str) and value in ("true", "false"):
            return value == "true"
        if isinstance(value, bool):
            return value
        raise _unfit(name, value, "true or false")
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise _unfit(name, value, _NAMES[kind])
    if kind is int and isinstance(value, float):
        raise _unfit(name, value, _NAMES[kind])
    try:
        made = number_or_word(value) if kind in (Any, Auto, str | int) else kind(value)
    except (ValueError, OverflowError):
        raise _unfit(name, value, _NAMES[kind]) from None
    if isinstance(made, int) and abs(made) >= 2**63:
        raise _unfit(name, made, f"{_NAMES[kind]} of at most 18 digits")
    return made


_NAMES: dict[Any, str] = {
    Any: "a number or a word",
    int: "a whole number",
    float: "a number",
    str: "a word",
    Auto: "a number or a word",
    str | int: "a whole number or a word",
}


def _unfit(name: str, value: Any, wanted: str) -> ScafflixError:
    try:
        shown = repr(value)
    except (ValueError, RecursionError):  # of more digits, or deeper, than Python writes
        shown = f"a {type(value).__name__}"
    return ScafflixError(f"{name} is {shown}; it must be {wanted}.")
