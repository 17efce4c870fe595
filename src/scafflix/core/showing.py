"""Objects that show themselves, in a picture and in a notebook, without knowing how to draw."""

from __future__ import annotations

from importlib import import_module
from typing import Any, ClassVar


class Shown:
    """A type that a module further on draws: `picture(thing)` and `html(thing)` are there.

    The module is named by the package's own `__init__`, and imported when something is shown:
    drawing takes a second to import.
    """

    drawn_by: ClassVar[str]

    def _artist(self) -> Any:
        return import_module(Shown.drawn_by)

    def plot(self) -> Any:
        """A picture (Matplotlib)."""
        return self._artist().picture(self)

    def _repr_html_(self) -> str:
        html: str = self._artist().html(self)
        return html
