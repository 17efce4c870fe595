"""How often and how long XLA compiled, for each thread; programs kept for the next start."""

from __future__ import annotations

import os
import threading

import jax

from scafflix.data.catalogue import cache_folder

WORTH_KEEPING = 0.3  # seconds of compilation


class Compilations(threading.local):
    """Programs compiled so far, and the seconds spent on tracing, lowering and compiling."""

    count: int = 0
    seconds: float = 0.0


COMPILATIONS = Compilations()


def _listen(event: str, duration_secs: float, **_: str | int) -> None:
    if event.startswith("/jax/core/compile/"):
        COMPILATIONS.seconds += duration_secs
        COMPILATIONS.count += event.endswith("backend_compile_duration")


jax.monitoring.register_event_duration_secs_listener(_listen)


def keep_programs() -> None:
    """Keep compiled programs on disk, unless JAX was told where: the next start is quicker."""
    if "JAX_COMPILATION_CACHE_DIR" not in os.environ:
        jax.config.update("jax_compilation_cache_dir", str(cache_folder() / "programs"))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", WORTH_KEEPING)
