"""What a step and a communication cost in time: a user's network, in words and numbers."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from scafflix.core.errors import ScafflixError

SECONDS = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "": 1.0}
BITS = {"bps": 1.0, "kbps": 1e3, "mbps": 1e6, "gbps": 1e9, "": 1.0}


class Costs(NamedTuple):
    """Seconds, and bits a second. Clients work at the same time, each on a line of its own."""

    latency: Any  # of a round, there and back; a number, or an array of them
    up: Any
    down: Any
    gradient: float  # of one client

    def seconds(self, iterations: Any, rounds: Any, up: Any, down: Any) -> Any:
        """For so many local steps, and rounds in which a client sends and receives these bits."""
        round_trip = self.latency + up / self.up + down / self.down
        return iterations * self.gradient + rounds * round_trip


def costs(latency: str, up: str, down: str, gradient: str) -> Costs:
    """From words.

    >>> costs("100ms", "1Mbps", "20Mbps", "5ms")
    Costs(latency=0.1, up=1000000.0, down=20000000.0, gradient=0.005)
    """
    return Costs(
        _number("latency", latency, SECONDS, "such as 0.1, 100ms or 20us", 0.0),
        _number("up", up, BITS, "such as 1Mbps or 500kbps"),
        _number("down", down, BITS, "such as 20Mbps or 1Gbps"),
        _number("gradient", gradient, SECONDS, "such as 0.005 or 5ms", 0.0),
    )


def _number(name: str, text: str, units: dict[str, float], like: str, least: float = 1.0) -> float:
    digits = text.strip().rstrip("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ ")
    unit = text.strip()[len(digits) :].strip().lower()
    try:
        found = float(digits) * units[unit]
    except (ValueError, KeyError):
        raise ScafflixError(f"{name} is {text!r}; give a number, {like}.") from None
    if not least <= found < math.inf:
        raise ScafflixError(f"{name} is {text!r}; it must be at least {least:g}.")
    return found
