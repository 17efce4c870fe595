"""A private federation of three nodes in one process, and its simulation."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import numpy as np
from flwr.app import Context
from in_process_grid import InProcessGrid
from numpy.typing import NDArray

from scafflix.federate.configuration import DeployConfig, checked, text_of
from scafflix.federate.flower_client import client_app, core_of
from scafflix.federate.flower_server import run
from scafflix.federate.learner import Place, client_key
from scafflix.federate.partition import write_nodes
from scafflix.gradients.private import drawn_at, normal_at
from scafflix.record import Record
from scafflix.runs.runner import execute

N = 3
KEYS: dict[str, Any] = {
    "data": "iris", "clients": N, "split": "shuffled", "scale": "standard", "test": 0.2,
    "model": "softmax", "privacy": "example", "clip": 1.0, "noise_multiplier": 2.0, "delta": 1e-4,
    "stepsize": 0.1, "p": 0.5, "rounds": 8, "seed": 3, "patience": 5.0,
}  # fmt: skip


class Seeded:
    """The random numbers of a simulation, which a server knows too."""

    def uniforms(self, place: Place, count: int) -> NDArray[Any]:
        drawn = jax.vmap(lambda at: drawn_at(client_key(place), at))(np.arange(count))
        return np.asarray(drawn)

    def normals(self, place: Place, number: int, shape: tuple[int, ...]) -> NDArray[Any]:
        return np.asarray(normal_at(number, shape, client_key(place)))


def deployed(folder: Path, **changes: Any) -> tuple[Record, InProcessGrid, list[Any]]:
    config, nodes = write_nodes(checked(DeployConfig(**{**KEYS, **changes})), N, folder)
    cores: dict[int, Any] = {}

    def make(context: Context) -> Any:
        return cores.setdefault(context.node_id, core_of(context))

    numbered = dict(enumerate(nodes, 10))
    grid = InProcessGrid(client_app(make), numbered, {"settings": text_of(config)})
    return run(grid, config, folder / "server", nodes=N, poll=0.001), grid, nodes


def simulated(**changes: Any) -> Record:
    return execute(DeployConfig(**{**KEYS, **changes}))
