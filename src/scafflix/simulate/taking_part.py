"""What taking part was worth to the clients: against the models that they have alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

PARTS = ("test", "validation")  # held-out examples, the more honest first


def gained(clients: Mapping[str, NDArray[Any]]) -> dict[str, Any] | None:
    """The loss saved on held-out examples, and who is worse off than alone, from the table of
    clients; None where there are no such examples, or no models of their own.

    >>> loss = {"local": [0.4, 0.2], "global": [0.3, 0.5], "personal": [0.3, 0.2]}
    >>> table = {f"test_loss_{kind}": np.array(values) for kind, values in loss.items()}
    >>> gained(table)["global"]["hurt"], gained(table)["personal"]["share_hurt"]
    (1, 0.0)
    """
    part = next((part for part in PARTS if f"{part}_loss_local" in clients), None)
    if part is None or f"{part}_loss_personal" not in clients:
        return None
    local = clients[f"{part}_loss_local"]
    known = np.isfinite(local)
    if not known.any():
        return None
    made: dict[str, Any] = {"part": part, "clients": int(known.sum())}
    for kind in ("personal", "global"):
        gain = (local - clients[f"{part}_loss_{kind}"])[known]
        hurt = gain < 0
        made[kind] = {
            "gain": float(gain.mean()),
            "gaining": int((gain > 0).sum()),
            "hurt": int(hurt.sum()),
            "share_hurt": float(hurt.mean()),
            "harm": float(-gain[hurt].mean()) if hurt.any() else 0.0,  # to those who are hurt
        }
    return made
