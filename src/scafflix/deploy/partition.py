"""The clients of a simulation as nodes: each with a file of its own."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from scafflix.cohorts.laboratory import load_federation, resolve
from scafflix.data.federation import Examples, Federation
from scafflix.deploy.configuration import DeployConfig
from scafflix.errors import ScafflixError
from scafflix.experiment import load_data
from scafflix.models import NETWORKS
from scafflix.personalize import read_alpha

Node = dict[str, Any]  # a node's own settings


def write_nodes(
    config: DeployConfig, count: int | None, folder: Path
) -> tuple[DeployConfig, list[Node]]:
    """Split the data as a simulation does; the nodes' settings and the configuration for them.

    Convex models train on what a simulation trains on. A network's node divides its rows into
    training, validation and test parts itself.
    """
    network = config.model in NETWORKS
    federation = load_federation(resolve(config)) if network else load_data(config)
    if count is not None and count != len(federation.clients):
        raise ScafflixError(
            f"There are {len(federation.clients)} clients in the data, but {count} nodes; give "
            f"--nodes {len(federation.clients)}, or clients = {count}."
        )
    alpha = read_alpha(config.alpha, len(federation.clients))
    nodes = []
    for number, name in enumerate(federation.clients):
        path = folder / f"{number:03d}"
        path.mkdir(parents=True, exist_ok=True)
        parts = federation.take([number]).parts
        _write(path / "data.npz", list(parts.values()) if network else [parts["train"]])
        own = {"client": _file_name(name), "data": str(path / "data.npz"), "folder": str(path)}
        nodes.append({**own, "alpha": float(alpha[number])})
    shares: dict[str, Any] = {} if network else {"test": None, "validation": None}
    made = replace(
        config,
        clients=None,
        split=None,
        features=None,
        label=None,
        scale="none",
        intercept=False,
        min_examples=None,
        classes=_classes(config, federation),
        **shares,
    )
    return made, nodes


def _write(path: Path, parts: list[Examples]) -> None:
    features = [
        p.features if isinstance(p.features, np.ndarray) else p.features.toarray() for p in parts
    ]
    np.savez(path, x=np.concatenate(features), y=np.concatenate([p.labels for p in parts]))


def _classes(config: DeployConfig, federation: Federation) -> tuple[Any, ...]:
    if config.model == "linear" or federation.train.labels.ndim > 1:
        return ()
    found = np.unique(np.concatenate([part.labels for part in federation.parts.values()]))
    return tuple(found.tolist())


def _file_name(name: str) -> str:
    return "".join(c if c.isalnum() or c in "._-" else "_" for c in name)[:100] or "client"
