"""Real files where they are present, and the small problems that many tests share."""

from __future__ import annotations

import gc
import gzip
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import jax
import numpy as np
import pytest

import scafflix as sx
from cases import KINDS, Case
from cases import case as make_case

# a program compiled once is found by later tests, and the next time; so are the programs of the
# processes that tests start, in a place of their own: those compile as a user's processes do
PROGRAMS, CACHE = Path(__file__).parents[1] / "build", "jax_compilation_cache_dir"
LEAST, KEPT = "jax_persistent_cache_min_compile_time_secs", 0.05
jax.config.update(CACHE, str(PROGRAMS / "programs"))
jax.config.update(LEAST, KEPT)
os.environ |= {CACHE.upper(): str(PROGRAMS / "programs-of-processes"), LEAST.upper(): str(KEPT)}
sx.use_all_cores()
# here programs run for milliseconds: compile them fast rather than well, in half the time
QUICK = "--xla_backend_optimization_level=0 --xla_cpu_use_fusion_emitters=false"
with mock.patch.dict(os.environ, XLA_FLAGS=f"{os.environ.get('XLA_FLAGS', '')} {QUICK}"):
    jax.devices()  # which reads the flags

# what takes longest begins first, so that the processes that share out the files end together
LONG = (
    "federate/test_processes.py",
    "federate/test_killed_commands.py",
    "federate/test_doors.py",
    "federate/test_hostile_node.py",
    "federate/test_lost_answers.py",
    "federate/test_refusing_nodes.py",
    "federate/test_flower.py",
    "federate/test_faults.py",
    "trust/test_kills.py",
    "test_wheel.py",
    "federate/test_pytorch.py",
    "docs/test_blocks.py",
    "estimators/test_checks.py",
    "federate/test_bounds.py",
    "cli/test_own_method.py",
    "cli/test_network_commands.py",
    "federate/test_parity.py",
    "models/test_networks.py",
)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--torture", action="store_true", help="as much as `make torture` does")


@pytest.fixture(scope="session")
def torture(request: pytest.FixtureRequest) -> bool:
    """Whether all is asked for of what breaks things on purpose, of which a little is always."""
    return bool(request.config.getoption("--torture"))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """File by file, as they were collected, but for the longest."""
    tests = Path(__file__).parent
    order = {tests / name: place for place, name in enumerate(LONG)}
    items.sort(key=lambda item: order.get(item.path, len(order)))


MOST_MAPS = 15_000  # Linux gives a process 65,530; a compiled program takes about ten of them


@pytest.fixture(scope="module", autouse=True)
def forget_programs() -> Iterator[None]:
    """Free compiled programs when there are many: LLVM crashes when memory maps run out."""
    yield
    maps = Path("/proc/self/maps")
    if maps.exists() and maps.read_text().count("\n") > MOST_MAPS:
        jax.clear_caches()
        gc.collect()


@pytest.fixture
def float64() -> Iterator[None]:
    """For tests of inner functions, which leave it to their callers to compute in float64."""
    with jax.enable_x64(True):
        yield


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache, so that nothing outside is touched."""
    folder = tmp_path / "cache"
    monkeypatch.setenv("SCAFFLIX_CACHE", str(folder))
    return folder


@pytest.fixture(scope="session")
def shared_data() -> Path:
    folder = Path(os.environ.get("SCAFFLIX_DATA") or Path(__file__).parents[2] / "shared" / "data")
    if not folder.is_dir():
        pytest.skip(f"no real data: {folder} is absent; set SCAFFLIX_DATA")
    return folder


collect_ignore = ["conftest.py"]  # no doctests here; folders below have files of the same name
WRITERS, IMAGES = 6, 40
MONOLOGUE = "to be or not to be that is the question whether tis nobler in the mind to suffer"


@pytest.fixture(scope="session")
def miniatures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Files in the places and forms of the real ones, with a few writers and roles."""
    folder, random = tmp_path_factory.mktemp("data"), np.random.default_rng(0)
    (folder / "femnist").mkdir()
    (folder / "shakespeare").mkdir()
    arrays: dict[str, Any] = {}
    for part, count in (("train", IMAGES), ("test", 8)):
        labels = random.integers(0, 62, WRITERS * count)
        labels[:62] = np.arange(min(62, len(labels)))
        arrays[f"{part}_x"] = (
            (labels[:, None, None] * 4 + random.integers(0, 8, (len(labels), 28, 28)))
            .clip(0, 255)
            .astype(np.uint8)
        )
        arrays[f"{part}_y"] = labels
        arrays[f"{part}_user"] = np.repeat([f"f{i:04}_00" for i in range(WRITERS)], count)
    np.savez(folder / "femnist" / "femnist_300_writers.npz", **arrays)
    words = MONOLOGUE.split()
    with gzip.open(folder / "shakespeare" / "shakespeare_roles.jsonl.gz", "wt") as file:
        for i in range(5):
            lines = [" ".join(random.choice(words, 12)) for _ in range(40)]
            file.write(json.dumps({"play": "Hamlet", "role": f"ROLE {i}", "lines": lines}) + "\n")
    return folder


@pytest.fixture(scope="session", params=KINDS)
def case(request: pytest.FixtureRequest) -> Case:
    """One problem for each model."""
    return make_case(request.param)


@pytest.fixture(scope="session")
def logistic_case() -> Case:
    return make_case("logistic")


@pytest.fixture(scope="session")
def linear_case() -> Case:
    return make_case("linear")
