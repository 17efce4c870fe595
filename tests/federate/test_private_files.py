"""What a federation leaves on the disk is readable by its owner alone."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("flwr", reason="Flower is not installed; pip install 'scafflix[flower]'")

from in_process_grid import InProcessGrid

from permissions import generous, open_to_others
from scafflix.federate import flower_server
from scafflix.federate.configuration import DeployConfig, checked, text_of
from scafflix.federate.flower_client import client_app
from scafflix.federate.local import LocalFederation
from scafflix.federate.partition import write_nodes


def test_nothing_private_in_the_folder_of_a_local_federation_is_open_to_others(
    tmp_path: Path,
) -> None:
    """Its own files, without Flower's processes."""
    keys = {"data": "iris", "clients": 2, "split": "shuffled", "model": "softmax"}
    config = checked(DeployConfig(**keys, rounds=2, alpha=0.5, mirror=True))
    folder = tmp_path / "runs" / "deploy"
    with generous():
        made, nodes = write_nodes(config, 2, folder / "nodes")
        LocalFederation(folder, made, nodes, secure=True)
        grid = InProcessGrid(client_app(), dict(enumerate(nodes, 10)), {"settings": text_of(made)})
        flower_server.run(grid, made, folder / "server", nodes=2, poll=0.0)
    files = {path.name for path in folder.rglob("*") if path.is_file()}
    private = {
        "data.npz",
        "optimum.safetensors",
        "checkpoint-0-2.safetensors",
        "models.safetensors",
    }
    private |= {"roster.safetensors", "rounds.jsonl", "authority.key", "server.key"}
    assert private <= files
    assert any(name.startswith("mirror-") for name in files)
    assert any(name.endswith("-model.safetensors") for name in files)
    assert open_to_others(tmp_path) == []
