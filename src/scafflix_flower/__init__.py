"""Flower's processes as scafflix starts them: with access control, and with one app only.

Flower 1.41 serves operators, nodes and its own processes on one address, does not authenticate
anyone, and runs any app it is given. Here `superlink` gives nodes a separate address, and
`executor` starts only `own_app`: the app of the installed scafflix.

This is a separate package, so that these processes load Flower and nothing of scafflix.
"""

from __future__ import annotations

import sys


def command(module: str, *words: str) -> list[str]:
    """The command line of a module here; -P prevents imports from the current folder."""
    return [sys.executable, "-P", "-m", f"scafflix_flower.{module}", *words]
