"""Results in JSON."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

import numpy as np


def to_json(value: Any, **options: Any) -> str:
    """JSON of results, in which NaN and infinity are null."""
    return json.dumps(_plain(value), allow_nan=False, **options)


def _plain(value: Any) -> Any:
    """JSON's own types; NaN and infinity, which JSON lacks, become null."""
    if isinstance(value, Mapping):
        return {key: _plain(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(entry) for entry in value]
    if isinstance(value, np.generic):
        value = value.item()
    return None if isinstance(value, float) and not math.isfinite(value) else value
