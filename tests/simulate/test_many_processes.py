"""The same run on one device, on two, and in two processes that share clients and their states."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from scafflix.record import Record

WORKER = Path(__file__).parent / "one_of_several.py"


def run(folder: Path, processes: int, devices: int) -> list[Record]:
    """The record of each process."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    started = []
    for number in range(processes):
        own = folder / str(number)
        variables = {
            **os.environ,
            "SCAFFLIX_CACHE": str(own / "cache"),
            "XLA_FLAGS": f"--xla_force_host_platform_device_count={devices}",
            "JAX_PLATFORMS": "cpu",
        }
        words = [str(number), str(processes), address, str(own / "record")]
        started.append(subprocess.Popen([sys.executable, str(WORKER), *words], env=variables))
    try:
        assert [process.wait(timeout=240) for process in started] == [0] * processes
    finally:
        for process in started:
            process.kill()
    return [Record.load(folder / str(number) / "record") for number in range(processes)]


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Record:
    (record,) = run(tmp_path_factory.mktemp("alone"), processes=1, devices=1)
    return record


@pytest.mark.parametrize(("processes", "devices"), [(1, 2), (2, 1)])
def test_sharing_out_changes_nothing_but_rounding(
    alone: Record, tmp_path: Path, processes: int, devices: int
) -> None:
    for record in run(tmp_path, processes, devices):
        assert record.models.keys() == alone.models.keys()
        for name, array in record.models.items():
            np.testing.assert_allclose(array, alone.models[name], rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(record.metrics["test_loss"], alone.metrics["test_loss"], 1e-5)
