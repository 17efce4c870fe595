"""How often and how long XLA compiled, counted for each thread."""

from __future__ import annotations

import threading

import jax


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
