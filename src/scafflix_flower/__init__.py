"""Flower's processes as scafflix starts them: few, with access control, and with one app only.

Flower 1.41 serves operators, nodes and its own processes on one address, does not authenticate
anyone, runs any app it is given, and starts a process for every message. Here `superlink` gives
nodes a separate address, `job` does the server's part of a run, and `supernode` passes messages to
a worker that stays. They run only `own_app`: the app of the installed scafflix.

This is a separate package, so that these processes load Flower and nothing of scafflix.
"""

from __future__ import annotations

import sys


def command(module: str, *words: str) -> list[str]:
    """The command line of a module here; -P prevents imports from the current folder."""
    return [sys.executable, "-P", "-m", f"scafflix_flower.{module}", *words]
