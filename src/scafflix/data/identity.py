"""What may be the id of a client: it ends up in files, in tables and on terminals."""

from __future__ import annotations

import re

from scafflix.core.errors import ScafflixError

LONGEST = 200
"""Letters of an id."""

CLIENT_LIMIT = 2**24
"""The most clients of a federation."""

RESERVED = re.compile(r"(con|prn|aux|nul|com\d|lpt\d)(\..*)?", re.IGNORECASE)
"""Names that Windows gives to devices."""


def fault_of_id(client: str) -> str | None:
    """Why a text cannot be the id of a client, or None.

    >>> fault_of_id("St. Mary's, ward 3"), fault_of_id("../ward")
    (None, 'has a slash')
    """
    if not client or client.isspace():
        return "is empty"
    if len(client) > LONGEST:
        return f"has more than {LONGEST} letters"
    if not client.isprintable():
        return "has letters that cannot be printed"
    if "/" in client or "\\" in client:
        return "has a slash"
    if not client.strip(". "):
        return "has only dots"
    if RESERVED.fullmatch(client):
        return "is the name of a device"
    return None


def check_ids(clients: tuple[str, ...], federation: str) -> None:
    """Refuse ids that could leave a folder, hide in a list or command a terminal."""
    if len(clients) > CLIENT_LIMIT:
        raise ScafflixError(
            f"The federation '{federation}' has {len(clients)} clients; at most {CLIENT_LIMIT} "
            "are possible."
        )
    for client in clients:
        fault = fault_of_id(client)
        if fault is not None:
            raise ScafflixError(
                f"The federation '{federation}' has a client {client!r} whose id {fault}; "
                f"give printable ids without slashes, of at most {LONGEST} letters."
            )


def client_name(value: object) -> str:
    """An id as text; whole numbers read alike whether they were stored as int or as float."""
    whole = isinstance(value, float) and value.is_integer() and abs(value) < 2**53
    return str(int(value)) if whole else str(value)  # type: ignore[call-overload]
