"""What a server can compute of a client from the messages that it gets anyway."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hospitals import Direct, Hospital, fresh_roster, make_server
from numpy.typing import NDArray

from scafflix import ScafflixError
from scafflix.federate.client import ClientCore
from scafflix.federate.configuration import DeployConfig
from scafflix.federate.messages import Train, Upload
from scafflix.federate.node import client_of
from scafflix.federate.serving import serve

ROUNDS, FEATURES, L2, ALPHA = 12, 20, 0.1, 0.5
RANDOM = np.random.default_rng(0)
ROWS = {rows: RANDOM.normal(size=(rows, FEATURES)) for rows in (1, 2, 5, 10, 40, 41)}


def clinic(folder: Path, rows: int, batch: int | str = "auto", **own: Any) -> ClientCore:
    path = folder / f"{rows}.npz"
    np.savez(path, x=ROWS[rows], y=np.arange(rows) % 2)
    config = DeployConfig(data="nodes", alpha=ALPHA, l2=L2, classes=(0, 1), batch=batch)
    settings = {"client": f"clinic-{rows}", "data": str(path), "folder": str(folder / "nodes")}
    return client_of(config, {**settings, **own})


def direction(seen: list[Any], client: str) -> NDArray[np.float64]:
    """Where the gradients of a client point: x_hat without what x_r, h_i and l2 put into it.

    All of this is known to a server that keeps the messages: h_i too, as its mirror shows.
    """
    found, h, last = [], np.zeros(FEATURES), None
    for request, upload in zip(seen[::2], seen[1::2], strict=True):
        if not (isinstance(upload, Upload) and upload.client == client):
            continue
        assert isinstance(request, Train)
        x, x_hat = request.point[0], upload.point[0]
        if last is not None:
            h = h + json.loads(request.settings)["p"] * ALPHA / request.gamma * (x - last)
        last = x_hat
        shrink = (1 - request.gamma * L2) ** np.arange(request.steps + 1)
        found.append(x_hat - shrink[-1] * x - request.gamma / ALPHA * shrink[:-1].sum() * h)
    assert len(found) == ROUNDS
    top: NDArray[np.float64] = np.linalg.svd(np.array(found))[2][0]
    return top


def nearest(folder: Path, rows: int) -> float:
    """The cosine between that direction and the row of the client that is nearest to it."""
    cores = [clinic(folder, count, **{"min-examples": 1}) for count in (rows, 40, 41)]
    hospitals = {core.name: Hospital(lambda hook, core=core: core) for core in cores}  # type: ignore[misc]
    transport = Direct(hospitals)
    server = make_server(folder, fresh_roster(hospitals), cores[0].learner.start(), rounds=ROUNDS)
    serve(server, transport)
    unit = ROWS[rows] / np.linalg.norm(ROWS[rows], axis=1, keepdims=True)
    return float(np.abs(unit @ direction(transport.seen, f"clinic-{rows}")).max())


def test_a_server_computes_the_features_of_a_client_with_one_example(tmp_path: Path) -> None:
    assert nearest(tmp_path, 1) > 0.99999


def test_the_features_of_one_of_ten_examples_are_not_as_plain(tmp_path: Path) -> None:
    assert nearest(tmp_path, 10) < 0.8


def test_a_client_with_few_examples_does_not_even_introduce_itself(tmp_path: Path) -> None:
    with pytest.raises(
        ScafflixError, match=r"clinic-5 trains on 5 examples.*at least 10 are needed"
    ):
        clinic(tmp_path, 5)
    assert clinic(tmp_path, 10).learner.examples == 10
    assert clinic(tmp_path, 5, **{"min-examples": 5}).learner.examples == 5


def test_a_server_that_asks_for_single_examples_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ScafflixError, match="clinic-40 trains on 40 examples, 1 at a time"):
        clinic(tmp_path, 40, batch=1)
