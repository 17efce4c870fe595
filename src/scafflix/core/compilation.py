"""How often and how long XLA compiled, for each thread; programs kept for the next start."""

from __future__ import annotations

import os
import threading
from functools import cache

import jax

from scafflix.core.cache import cache_folder

WORTH_KEEPING = 0.05  # seconds of compilation: to read a program takes less
# XLA's older way to write loops compiles in a third to two thirds of the time. Programs of linear
# models are as fast by it, evaluations of networks a hundredth slower, and the local steps of a
# network a tenth, so those go without.
SIMPLE_LOOPS = {"xla_cpu_use_fusion_emitters": False}


class Compilations(threading.local):
    """Counts from the first time that somebody asks, for each thread."""

    _count: int = 0
    _seconds: float = 0.0

    @property
    def count(self) -> int:
        """Programs compiled."""
        _listen()
        return self._count

    @property
    def seconds(self) -> float:
        """Spent on tracing, lowering and compiling."""
        _listen()
        return self._seconds

    def add(self, event: str, duration_secs: float, **_: str | int) -> None:
        """What JAX reports."""
        if event.startswith("/jax/core/compile/"):
            self._seconds += duration_secs
            self._count += event.endswith("backend_compile_duration")


COMPILATIONS = Compilations()


@cache
def _listen() -> None:
    jax.monitoring.register_event_duration_secs_listener(COMPILATIONS.add)


def keep_programs() -> None:
    """Keep compiled programs on disk, unless JAX was told where: the next start is quicker."""
    if "JAX_COMPILATION_CACHE_DIR" not in os.environ:
        jax.config.update("jax_compilation_cache_dir", str(cache_folder() / "programs"))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", WORTH_KEEPING)
