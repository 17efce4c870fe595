"""Functions of a user's own, by the name of a file or a module and theirs."""

from __future__ import annotations

import importlib
import importlib.util
from functools import cache
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType
from typing import Any

from scafflix.core.errors import ScafflixError, reason_of


def find_function(name: str, what: str) -> Any:
    """FILE.py:FUNCTION, or MODULE:FUNCTION; `what` it is for, in an error."""
    module, _, function = name.rpartition(":")
    try:
        return getattr(_import(module), function)
    except (ImportError, AttributeError, ValueError, OSError, SyntaxError) as error:
        raise ScafflixError(
            f"{what} is {name!r}, which cannot be imported: {reason_of(error)}"
        ) from None


def module_of(name: str) -> ModuleType:
    """The file or module of a function that was found by this name."""
    return _import(name.rpartition(":")[0])


def source_of(name: str) -> str:
    """The text of the FILE.py in a function's name; of another name, nothing."""
    file = Path(name.rpartition(":")[0])
    return file.read_text() if file.suffix == ".py" else ""


def _import(name: str) -> ModuleType:
    path = Path(name)
    if path.suffix != ".py":
        return importlib.import_module(name)
    return _execute(path.resolve(), path.read_bytes())


@cache
def _execute(path: Path, content: bytes) -> ModuleType:
    """A file as a module: the same one for as long as it has this content, so that its functions
    are the same and what was compiled of them is used again."""
    loader = _AsWritten(path.stem, str(path))
    spec = importlib.util.spec_from_file_location(path.stem, path, loader=loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


class _AsWritten(SourceFileLoader):
    """It keeps no compiled code, which would be taken for a file as long of the same second."""

    def path_stats(self, path: Any) -> Any:
        raise OSError
