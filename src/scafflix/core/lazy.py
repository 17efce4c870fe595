"""Names of a package that are imported when they are first used (PEP 562)."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any


def lazily(
    package: str, homes: Mapping[str, Sequence[str]], modules: Sequence[str] = ()
) -> Callable[[str], Any]:
    """A package's `__getattr__`: names by the module that has them, and modules of its own."""
    home_of = {name: home for home, names in homes.items() for name in names}
    path_of = {path.rpartition(".")[2]: path for path in modules}

    def find(name: str) -> Any:
        if name in path_of:
            return import_module(f"{package}.{path_of[name]}")
        if name not in home_of:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        found = getattr(import_module(f"{package}.{home_of[name]}"), name)
        setattr(sys.modules[package], name, found)  # next time it is found without this
        return found

    return find
