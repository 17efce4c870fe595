"""Flower's processes as scafflix starts them: with a closed door, and with one app.

Flower 1.41 serves its operators, its nodes and its own processes on one address, asks nobody who
they are, and runs whatever app it is handed. Here `superlink` gives nodes an address of their own,
and `executor` starts nothing but `own_app`: the app of the installed scafflix.

A package of its own, so that these processes load Flower and nothing of scafflix.
"""

from __future__ import annotations

import sys


def command(module: str, *words: str) -> list[str]:
    """A process of this package; -P, so that nothing is imported from the folder it starts in."""
    return [sys.executable, "-P", "-m", f"scafflix_flower.{module}", *words]
