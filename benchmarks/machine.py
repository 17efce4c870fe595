"""What the machine can do at most, measured: matrix products and memory."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

SIDE = 2048  # of the matrices that are multiplied
BYTES = 1 << 28  # of the arrays that are copied


def best(action: Callable[[], object], repeat: int) -> float:
    """Seconds of the quickest of several."""
    seconds = []
    for _ in range(repeat):
        began = time.perf_counter()
        action()
        seconds.append(time.perf_counter() - began)
    return min(seconds)


def product_peak(repeat: int) -> dict[str, float]:
    """GFLOP/s of float32 matrix products on all cores, by NumPy's library and by XLA's."""
    draw = np.random.default_rng(0)
    a, b = (draw.standard_normal((SIDE, SIDE), np.float32) for _ in range(2))
    c = np.empty_like(a)
    on_device = jnp.asarray(a), jnp.asarray(b)
    multiply = jax.jit(jnp.dot)
    multiply(*on_device).block_until_ready()
    seconds = {
        "numpy": best(lambda: np.dot(a, b, out=c), repeat),
        "xla": best(lambda: multiply(*on_device).block_until_ready(), repeat),
    }
    return {name: 2 * SIDE**3 / took / 1e9 for name, took in seconds.items()}


def bandwidth(repeat: int) -> float:
    """GB/s read and written by a copy that no cache holds, on all cores."""
    many = len(jax.devices())
    source = jnp.zeros((many, BYTES // 4 // many), jnp.float32)
    shared = jax.device_put(
        source, jax.sharding.NamedSharding(jax.make_mesh((many,), ("cores",)),
                                           jax.sharding.PartitionSpec("cores"))
    )  # fmt: skip
    copy = jax.jit(lambda x: x + 1)
    copy(shared).block_until_ready()
    return 2 * BYTES / best(lambda: copy(shared).block_until_ready(), repeat) / 1e9


def processor() -> str:
    """The name the system gives it."""
    information = Path("/proc/cpuinfo")
    if information.exists():
        for line in information.read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":")[1].strip()
    return platform.processor() or platform.machine()


def describe(repeat: int) -> dict[str, Any]:
    """The machine and its limits."""
    peak = product_peak(repeat)
    return {
        "processor": processor(),
        "cores": os.cpu_count(),
        "memory_gigabytes": os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 1e9,
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "jax": version("jax"),
        "numpy": version("numpy"),
        "load_before": os.getloadavg()[0],
        "gigaflops": max(peak.values()),
        "gigaflops_by": peak,
        "bandwidth_gigabytes": bandwidth(repeat),
    }
