"""Noise that the server of a federation adds: whole federations, in one process."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("flwr", reason="Flower is not installed; pip install 'scafflix[flower]'")
pytest.importorskip("dp_accounting", reason="no accountant; pip install 'scafflix[privacy]'")

from hospitals import LEARNERS, Direct, introduce
from private_federations import KEYS, N, deployed, simulated
from scipy import stats
from test_privacy import private_hospitals

from scafflix.core import streams
from scafflix.core.errors import ScafflixError
from scafflix.core.precision import precision
from scafflix.core.streams import Stream
from scafflix.federate.configuration import DeployConfig, checked
from scafflix.federate.files import Moment
from scafflix.federate.messages import Upload
from scafflix.federate.node import client_of
from scafflix.federate.partition import write_nodes
from scafflix.federate.planning import advice
from scafflix.federate.privacy import Terms
from scafflix.federate.roster import new_roster
from scafflix.federate.server import ServerCore
from scafflix.federate.server_noise import ServerNoise
from scafflix.federate.serving import serve
from scafflix.federate.settings import Settings
from scafflix.federate.wire import unpack
from scafflix.gradients import Exact
from scafflix.methods import METHODS
from scafflix.methods.private import normals

CLIENTS: dict[str, Any] = {**KEYS, "privacy": "client", "noise_at": "server", "method": "fedavg"}
TERMS = Terms(clip=0.5, noise=2.0, delta=1e-3, noise_at="server")


def seeded(self: ServerNoise, at: Moment, shapes: Sequence[tuple[int, ...]]) -> list[Any]:
    """The random numbers of a simulation, which every client knows too."""
    key = streams.at_round(KEYS["seed"], Stream.SERVER, at.round)
    double = len(shapes) == 1  # a linear model
    arrays = [np.zeros(shape, np.float64 if double else np.float32) for shape in shapes]
    with precision(double):
        return [np.asarray(one) for one in normals(key, arrays)]


CASES: dict[str, tuple[dict[str, Any], float]] = {
    "all clients": ({"alpha": 0.5}, 1e-12),
    "two of them": ({"cohort": 2, "minimum": 2}, 1e-12),
    "ditto": ({"method": "ditto", "alpha": 0.5}, 1e-12),
    "no local steps": ({"method": "gd", "p": "auto"}, 1e-12),
    "secure aggregation": ({"alpha": 0.5, "secure_aggregation": True}, 1e-9),
    "network": (
        {"model": "dense", "batch": 12, "optima": "none", "validation": 0.0, "clip": 0.05},
        1e-5,
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_with_the_random_numbers_of_a_simulation_the_models_and_epsilons_are_its_own(
    case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ServerNoise, "normals", seeded)
    changes, close = CASES[case]
    made, _, _ = deployed(tmp_path, **{**CLIENTS, **changes})
    expected = simulated(**{**CLIENTS, **changes})
    for name, mine in made.models.items():
        np.testing.assert_allclose(mine, expected.models[name], rtol=0, atol=close)
    if "cohort" in changes:  # a server counts no amplification: clients know whom rounds asked
        assert (made.clients["epsilon"] >= expected.clients["epsilon"]).all()
    else:
        np.testing.assert_allclose(made.clients["epsilon"], expected.clients["epsilon"])
    assert made.summary["privacy"]["noise_at"] == "server"
    assert made.clients["epsilon"].min() > 0


def test_uploads_are_clipped_without_noise_and_nothing_else_made_of_data_is_told(
    tmp_path: Path,
) -> None:
    made, grid, _ = deployed(tmp_path, **{**CLIENTS, "clip": 0.05})
    other, _, _ = deployed(tmp_path / "other", **{**CLIENTS, "clip": 0.05})
    told = [unpack(record) for record in grid.records]
    points = {one.round: one.point for one in told if type(one).__name__ == "Train"}
    uploads = [one for one in told if isinstance(one, Upload)]
    assert len(uploads) == N * KEYS["rounds"]
    for one in uploads:
        away = np.concatenate(
            [np.ravel(a - b) for a, b in zip(one.point, points[one.round], strict=True)]
        )
        assert np.linalg.norm(away) <= 0.05 * (1 + 1e-12)
        assert np.isnan(one.loss)
    # of one seed, which all clients know, and yet nobody else's noise
    assert np.abs(made.models["global"] - other.models["global"]).max() > 1e-3
    (secret,) = (tmp_path / "server").glob("noise.*")
    assert secret.stat().st_mode & 0o077 == 0


def a_server(folder: Path, hospitals: Any, method: str = "fedavg", **settings: Any) -> ServerCore:
    roster = settings.pop("roster", None) or new_roster(introduce(hospitals))
    people = [one for one in roster.introductions if one.alpha > 0]
    made = METHODS[method](advice(people, Exact(), 0.2, 0.5), p=0.5)
    back_to = settings.pop("back_to", None)
    chosen = Settings(**{"rounds": 6, "privacy": TERMS, **settings})
    (folder / "server").mkdir(exist_ok=True)
    start = LEARNERS[0].start().tree
    return ServerCore(folder / "server", roster, made, start, chosen, back_to=back_to)


def test_a_server_that_starts_again_goes_on_to_the_bit_and_one_that_goes_back_draws_anew(
    tmp_path: Path,
) -> None:
    hospitals = private_hospitals(tmp_path, TERMS)
    core = a_server(tmp_path, hospitals, rounds=3)
    serve(core, Direct(hospitals))
    closed: list[Any] = []
    for _ in range(2):  # the fourth round, closed twice by servers that did not know of each other
        again = a_server(tmp_path, hospitals, roster=core.roster, rounds=4)
        again.checkpoint = lambda: None  # type: ignore[method-assign]
        assert again.noise is not None
        serve_one(again, hospitals)
        closed.append(again.x)
    for a, b in zip(*closed, strict=True):
        np.testing.assert_array_equal(a, b)
    back = a_server(tmp_path, hospitals, roster=core.roster, rounds=4, back_to=3)
    assert back.epoch == 1
    serve_one(back, hospitals)
    assert all(np.abs(a - b).max() > 1e-3 for a, b in zip(back.x, closed[0], strict=True))


def serve_one(core: ServerCore, hospitals: Any) -> None:
    for name, request in core.requests().items():
        core.receive(name, hospitals[name].handle(request))
    assert core.close()


def test_the_servers_numbers_are_normal_and_others_in_other_rounds_and_epochs(
    tmp_path: Path,
) -> None:
    noise = ServerNoise(tmp_path, TERMS)
    drawn = [
        np.concatenate([np.ravel(one) for one in noise.normals(at, [(40, 50), (30,)])])
        for at in (Moment(0, 0), Moment(0, 1), Moment(1, 0))
    ]
    assert all(stats.kstest(one, "norm").pvalue > 1e-4 for one in drawn)
    assert np.abs(np.corrcoef(drawn) - np.eye(3)).max() < 0.1
    again = ServerNoise(tmp_path, TERMS).normals(Moment(0, 1), [(2030,)])[0]
    np.testing.assert_array_equal(again, drawn[1])


def test_a_mean_of_fewer_replies_is_as_noisy_as_is_counted(tmp_path: Path) -> None:
    hospitals = private_hospitals(tmp_path, TERMS)
    core = a_server(tmp_path, hospitals)
    for name, request in list(core.requests().items())[: core.minimum]:
        core.receive(name, hospitals[name].handle(request))
    assert core.close()
    assert {one for one in core.spending.spent.values() if one} == {1 / TERMS.noise**2}
    average = (np.zeros(20_000),)
    assert core.noise is not None
    made = core.noise.added(Moment(0, 0), average, [1.0] * core.minimum)[0]
    assert abs(made.std() * core.minimum / (TERMS.clip * TERMS.noise) - 1) < 0.03


def test_the_budget_ends_the_run(tmp_path: Path) -> None:
    keys = {**CLIENTS, "budget": 6.0, "rounds": 50}
    made, _, _ = deployed(tmp_path, **keys)
    expected = simulated(**keys)
    assert 0 < made.summary["rounds"] == expected.summary["rounds"] < 50
    assert made.summary["privacy"] == expected.summary["privacy"]


def test_a_server_refuses_a_method_that_this_breaks(tmp_path: Path) -> None:
    hospitals = private_hospitals(tmp_path, TERMS)
    with pytest.raises(ScafflixError, match="With scafflix clients keep what must fit the mean"):
        a_server(tmp_path, hospitals, "scafflix")


def test_a_node_with_a_budget_of_its_own_trusts_no_servers_noise(tmp_path: Path) -> None:
    config, nodes = write_nodes(checked(DeployConfig(**CLIENTS)), N, tmp_path)
    with pytest.raises(ScafflixError, match="which no node can check"):
        client_of(config, {**nodes[0], "budget": 3})
