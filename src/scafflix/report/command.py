"""The words that make a run again."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from scafflix.runs.config import RunConfig


def command(config: Mapping[str, Any]) -> str | None:
    """For a run that was asked for with a full configuration; None for one started in Python.

    >>> from scafflix.runs.config import plain
    >>> command(plain(RunConfig(data="digits", alpha=0.5, intercept=True)))
    'scafflix run --data digits --intercept --alpha 0.5'
    """
    known = {entry.name: entry.default for entry in fields(RunConfig)}
    if not {"data", "method", "batch", "start"} <= config.keys():
        return None
    if not config.keys() <= known.keys():
        return "scafflix deploy local --config config.toml"
    if isinstance(config.get("alpha"), list):
        return "scafflix run config.toml"
    words = ["scafflix", "run"]
    for name, value in config.items():
        flag = "--" + name.replace("_", "-")
        if isinstance(value, bool):
            words += [flag] if value else []
        elif value != known[name]:
            words += [flag, str(value)]
    return shlex.join(words)
