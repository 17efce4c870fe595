"""A federation whose model is a mean over rounds: the models of its simulation."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("flwr", reason="Flower is not installed; pip install 'scafflix[flower]'")

from private_federations import KEYS, deployed, simulated

OPEN: dict[str, Any] = {
    **KEYS, "privacy": "none", "clip": None, "noise_multiplier": None, "delta": None,
    "alpha": 0.5, "average": 0.3,
}  # fmt: skip
CASES: dict[str, tuple[dict[str, Any], float]] = {
    "scafflix": ({}, 1e-9),
    "some clients": ({"cohort": 2}, 1e-9),
    "secure aggregation": ({"secure_aggregation": True}, 1e-9),
    "network": (
        {"model": "dense", "batch": 12, "optima": "none", "alpha": 1.0, "validation": 0.0},
        1e-5,
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_clients_take_home_the_mean_as_in_the_simulation(case: str, tmp_path: Path) -> None:
    changes, close = CASES[case]
    keys = {**OPEN, **changes}
    made, _, _ = deployed(tmp_path, **keys)
    expected = simulated(**keys)
    last = simulated(**{**keys, "average": 0.0})
    for name, mine in made.models.items():
        np.testing.assert_allclose(mine, expected.models[name], rtol=0, atol=close)
    shared = [name for name in made.models if name.startswith("global")]
    assert max(np.abs(made.models[name] - last.models[name]).max() for name in shared) > 1e-4
