"""Libraries that only some users need, each an extra of the package."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from scafflix.core.errors import ScafflixError


def library(name: str, extra: str) -> Any:
    """The module, or one sentence that names the extra that brings it.

    >>> library("no_such_module", "torch")
    Traceback (most recent call last):
    scafflix.core.errors.ScafflixError: torch is not installed; run: pip install 'scafflix[torch]'.
    """
    try:
        return import_module(name)
    except ImportError:
        raise ScafflixError(
            f"{extra} is not installed; run: pip install 'scafflix[{extra}]'."
        ) from None
