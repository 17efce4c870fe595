"""The same configuration and seed give the same bytes: twice, and after a crash."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from crashes import CONVEX, NETWORK, CrashError, content, run

from cases import ON_LINEAR, SOME_METHODS
from scafflix.methods import METHODS, parameters
from scafflix.models import is_network

ON_NETWORKS = (*SOME_METHODS, "finetuning", "fedrep")
EXACT = ("gd", "nesterov")  # take full gradients
CASES = [
    pytest.param(
        {
            **{key: kind[key] for key in kind if key != "p" or "p" in parameters(METHODS[method])},
            "method": method,
            "batch": "full" if method in EXACT else 4,
        },
        id=f"{kind['model']}-{method}",
    )
    for kind in (CONVEX, NETWORK)
    for method in (ON_NETWORKS if is_network(kind["model"]) else ON_LINEAR)
]


@pytest.fixture(autouse=True, scope="module")
def _own_cache(tmp_path_factory: pytest.TempPathFactory) -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SCAFFLIX_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.mark.parametrize("settings", CASES)
def test_a_method_gives_the_same_bytes_twice_and_after_a_crash(
    settings: dict[str, Any], tmp_path: Path
) -> None:
    whole = content(run(settings), tmp_path / "whole")
    assert content(run(settings), tmp_path / "again") == whole
    for crash in (6, 10):  # after checkpoints at 4 and 8
        with pytest.raises(CrashError):
            run(settings, tmp_path / "checkpoints", crash)
    assert content(run(settings, tmp_path / "checkpoints"), tmp_path / "resumed") == whole


def test_a_record_says_what_it_was_made_with(tmp_path: Path) -> None:
    record = run(CONVEX)
    assert {"seed", "data_seed", "model_seed"} <= record.config.keys()
    assert {"scafflix", "jax", "jaxlib", "numpy", "python", "machine", "commit"} <= record.summary[
        "versions"
    ].keys()


@pytest.mark.parametrize(
    ("settings", "name"),
    [
        pytest.param(CONVEX, "seed", id="convex-seed"),
        pytest.param(CONVEX, "data_seed", id="convex-data_seed"),
        pytest.param(NETWORK, "seed", id="network-seed"),
        pytest.param(NETWORK, "data_seed", id="network-data_seed"),
        pytest.param(NETWORK, "model_seed", id="network-model_seed"),
    ],
)
def test_seeds_are_apart(settings: dict[str, Any], name: str) -> None:
    first, other = run(settings), run({**settings, name: 1})
    same = (first.metrics["local_steps"] == other.metrics["local_steps"]).all()
    assert same == (name != "seed")  # only the algorithm's seed moves the coin
    loss = "train_loss" if is_network(settings["model"]) else "objective_gap"
    assert (first.metrics[loss][1:] != other.metrics[loss][1:]).any()
