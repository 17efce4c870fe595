"""What scikit-learn's users and tools catch: a ScafflixError that is a ValueError too."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from scafflix.core.errors import ScafflixError


class InputError(ScafflixError, ValueError):
    """One sentence about what an estimator was given."""


@contextmanager
def as_value_errors() -> Iterator[None]:
    """What the package refuses in here is refused as a ValueError.

    >>> try:
    ...     with as_value_errors():
    ...         raise ScafflixError("rounds is 0; it must be at least 1.")
    ... except ValueError as error:
    ...     print(error)
    rounds is 0; it must be at least 1.
    """
    try:
        yield
    except ScafflixError as error:
        raise InputError(str(error)) from None
