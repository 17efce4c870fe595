"""Speaking roles, a JSON object a line: ``{"play": ..., "role": ..., "lines": [...]}``.

A client is a role of a play; its lines, joined by newlines, are one text. The file may be
compressed (``.jsonl.gz``).
"""

from __future__ import annotations

import json
from pathlib import Path

from scafflix.core.errors import ScafflixError
from scafflix.data.decompression import UNREADABLE, open_text, unreadable
from scafflix.data.federation import Features, Labels
from scafflix.data.parts import Budget, Parts
from scafflix.data.text import sequences


def read_roles(path: Path) -> Parts:
    """The roles of the file; it has no test part.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder, "roles.jsonl")
    ...     _ = path.write_text('{"play": "Hamlet", "role": "GHOST", "lines": ["Mark me."]}')
    ...     roles = read_roles(path).train
    >>> [(client, features.shape) for client, (features, labels) in roles.items()]
    [('Hamlet: GHOST', (1, 80))]
    """
    roles: dict[str, tuple[Features, Labels]] = {}
    budget = Budget(path)
    try:
        with open_text(path) as file:
            for number, line in enumerate(file, start=1):
                if not line.strip():
                    continue
                where = f"{path}, line {number}"
                budget.spend(len(line))
                client, text = parse_role(line, where)
                if client in roles:
                    raise ScafflixError(f"{where}: {client!r} occurs twice; join its lines.")
                roles[client] = sequences([text] if text else [])
    except UNREADABLE as error:
        raise unreadable(path, error) from error
    if not roles:
        raise ScafflixError(
            f"{path}: no roles; give one JSON object with play, role and lines per line."
        )
    return Parts(roles)


def parse_role(line: bytes, where: str) -> tuple[str, str]:
    """The client of a line and its text."""
    try:
        role = json.loads(line)
    except (ValueError, RecursionError) as error:
        reason = getattr(error, "msg", None) or type(error).__name__
        raise ScafflixError(f"{where}: not valid JSON ({reason}).") from error
    if not isinstance(role, dict):
        raise ScafflixError(f"{where}: not a JSON object; it must have play, role and lines.")
    for key in ("play", "role"):
        if not isinstance(role.get(key), str):
            raise ScafflixError(f"{where}: {key!r} is missing or not text.")
    client = f"{role['play']}: {role['role']}"
    lines = role.get("lines")
    if not isinstance(lines, list) or not all(isinstance(spoken, str) for spoken in lines):
        raise ScafflixError(
            f"{where}, client {client!r}: 'lines' is missing or not a list of texts."
        )
    return client, "\n".join(lines)
