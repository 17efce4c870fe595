"""A federation whose model is a mean over rounds: the models of its simulation."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("flwr", reason="Flower is not installed; pip install 'scafflix[flower]'")

from hospitals import LEARNERS, introduce, quadratic_hospitals
from private_federations import KEYS, deployed, simulated

import scafflix as sx
from scafflix.federate.planning import advice
from scafflix.federate.roster import new_roster
from scafflix.federate.server import ServerCore
from scafflix.federate.settings import Settings
from scafflix.gradients import Exact

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
    assert made.summary["average"] == expected.summary["average"] == 0.3
    for name, mine in made.models.items():
        np.testing.assert_allclose(mine, expected.models[name], rtol=0, atol=close)
    shared = [name for name in made.models if name.startswith("global")]
    assert max(np.abs(made.models[name] - last.models[name]).max() for name in shared) > 1e-4


def test_a_server_goes_on_with_the_mean_it_began_with_and_no_other(tmp_path: Path) -> None:
    roster = new_roster(introduce(quadratic_hospitals(tmp_path)))
    people = [one for one in roster.introductions if one.alpha > 0]
    plain = sx.scafflix(advice(people, Exact(), 0.2, 0.5), p=0.5)
    (tmp_path / "server").mkdir()

    def server(share: float) -> ServerCore:
        method, start = sx.averaged(plain, share), LEARNERS[0].start().tree
        return ServerCore(tmp_path / "server", roster, method, start, Settings(rounds=3))

    server(0.3)
    assert server(0.3).round == 0
    for share in (0.0, 0.2):
        with pytest.raises(sx.ScafflixError, match=f"whose average is 0.3, not {share}"):
            server(share)
