"""The README and the pages of the site, as blocks of code, words in code and outputs."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
FENCE = re.compile(r"^```(?P<info>[^\n`]*)\n(?P<body>.*?)^```", re.S | re.M)


@dataclass(frozen=True)
class Block:
    """A fenced block: its language, the file that it is an excerpt of, what it holds."""

    kind: str
    title: str | None
    body: str
    line: int

    @property
    def only_shown(self) -> bool:
        """Commands under a comment that says why they are not run in passing."""
        return self.kind == "console" and self.body.startswith("#")


def blocks(page: Path) -> list[Block]:
    """The fenced blocks of a page, in order."""
    text = page.read_text()
    found = []
    for match in FENCE.finditer(text):
        title = re.search(r'title="([^"]+)"', match["info"])
        found.append(
            Block(
                kind=match["info"].split(" ")[0],
                title=title and title[1],
                body=match["body"],
                line=text.count("\n", 0, match.start()) + 1,
            )
        )
    return found


def command_lines(body: str) -> list[str]:
    """The lines of a console block, without comments, continued ones joined."""
    joined = body.replace("\\\n", " ").splitlines()
    return [line.split("  #")[0].strip() for line in joined if line and line[0] != "#"]


def shown_commands(page: Path) -> list[str]:
    """Every `scafflix ...` on a line of its own, fenced or indented."""
    text = page.read_text()
    fenced = [block.body for block in blocks(page) if block.kind == "console"]
    indented = re.findall(r"^    (.*(?:\\\n.*)*)", FENCE.sub("", text), re.M)
    lines = command_lines("\n".join([*fenced, *indented]))
    return [line for line in lines if line.startswith("scafflix ")]


def words_in_code(page: Path) -> list[str]:
    """What stands between single backticks, outside of blocks."""
    prose = FENCE.sub("", page.read_text())
    return [" ".join(span.split()) for span in re.findall(r"(?<!`)`([^`]+)`(?!`)", prose)]
