"""Docstrings are plain text that happens to be nearly Markdown: this makes up the difference."""

from __future__ import annotations

import re
from typing import Any

import griffe

CODE = re.compile(r"(``.*?``|`[^`]*`)", re.S)


class PlainDocstrings(griffe.Extension):
    """Sets doctests as code, and keeps the star of x_i* from meaning emphasis."""

    def on_object(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        if obj.docstring is not None:
            paragraphs = re.split(r"\n{2,}", obj.docstring.value)
            obj.docstring.value = "\n\n".join(map(as_markdown, paragraphs))


def as_markdown(paragraph: str) -> str:
    """One paragraph of a docstring.

    >>> as_markdown("x_i* and f~*, in `a*b`")
    'x_i\\\\* and f~\\\\*, in `a*b`'
    """
    if paragraph.startswith(">>>"):
        return f"```pycon\n{paragraph}\n```"
    if paragraph.startswith("    "):  # a formula
        return paragraph
    parts = CODE.split(paragraph)
    parts[::2] = [words.replace("*", r"\*") for words in parts[::2]]
    return "".join(parts)
