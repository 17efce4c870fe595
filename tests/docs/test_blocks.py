"""What the README and the docs show is run, page by page, in order; what it prints is compared."""

from __future__ import annotations

import math
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from pages import PAGES, ROOT, Block, blocks, command_lines

import scafflix as sx
from scafflix.cli import main

NAMED_DATA = [entry.name for entry in sx.data.known() if entry.files]
NEEDS_DATA = re.compile(rf"SCAFFLIX_DATA|--data ({'|'.join(NAMED_DATA)})\b")
RUNNABLE = [page for page in PAGES if any(b.kind in ("python", "console") for b in blocks(page))]
SIMILAR = 0.02  # printed numbers agree up to rounding, on any machine


def run_command(line: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run `scafflix ...` here, and see that a target of the Makefile exists."""
    words = shlex.split(line)
    if words[0] == "make":
        subprocess.run(["make", "-n", *words[1:]], cwd=ROOT, check=True, capture_output=True)
        return
    assert words[0] == "scafflix", f"not a command that can be tested: {line}"
    monkeypatch.setattr(sys, "argv", words)
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 0, line


def alike(shown: str, printed: str) -> bool:
    """Whether two lines hold the same words and, nearly, the same numbers, up to a `...`."""
    ours, theirs = (re.sub(r"[─━│,;:()%]", " ", line).split() for line in (shown, printed))
    if ours[-1] == "...":
        ours.pop()
        theirs = theirs[: len(ours)]

    def same(left: str, right: str) -> bool:
        try:
            return math.isclose(float(left), float(right), rel_tol=SIMILAR)
        except ValueError:
            return left == right

    return len(ours) == len(theirs) and all(map(same, ours, theirs))


def check_output(shown: str, printed: str) -> None:
    """Every line shown was printed, in this order; the page may leave lines out."""
    rest = iter(printed.splitlines())
    for line in filter(str.strip, shown.splitlines()):
        assert any(alike(line, other) for other in rest), f"not printed: {line}\n{printed}"


@pytest.mark.parametrize("page", RUNNABLE, ids=lambda page: page.stem)
def test_a_page_does_what_it_shows(
    page: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("examples").symlink_to(ROOT / "examples")  # as in a clone
    monkeypatch.setenv("SCAFFLIX_CACHE", str(tmp_path / "cache"))
    names: dict[str, object] = {"__name__": page.stem}
    printed: str | None = None
    for block in blocks(page):
        if block.kind == "text" and printed is not None:
            check_output(block.body, printed)
        printed = None
        if block.kind == "toml" and block.title is not None:  # a file that the reader makes
            Path(block.title).write_text(block.body)
        if block.kind not in ("python", "console") or block.only_shown or block.title:
            continue
        if NEEDS_DATA.search(block.body):
            folder = request.getfixturevalue("shared_data")  # skips the rest where it is absent
            monkeypatch.setenv("SCAFFLIX_DATA", str(folder))
        capsys.readouterr()
        run_block(block, names, monkeypatch)
        printed = capsys.readouterr().out


def run_block(block: Block, names: dict[str, object], monkeypatch: pytest.MonkeyPatch) -> None:
    if block.kind == "python":
        exec(compile(block.body, f"line {block.line}", "exec"), names)
        return
    for line in command_lines(block.body):
        run_command(line, monkeypatch)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_block_has_a_kind_that_is_tested(page: Path) -> None:
    for block in blocks(page):
        assert block.kind in ("", "python", "console", "text", "toml"), f"line {block.line}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_excerpts_are_as_in_the_source(page: Path) -> None:
    for block in blocks(page):
        if block.kind == "python" and block.title is not None:
            source = (ROOT / block.title).read_text()
            for part in block.body.strip().split("\n\n\n"):
                assert part in source, f"line {block.line}: not in {block.title}\n{part}"


def test_the_comparison_of_outputs_tells_other_words_and_numbers_apart() -> None:
    assert alike("gap  0.1234 (round 3)", "gap 0.1235  (round 3)")
    assert alike("gap 0.12 ...", "gap 0.12 at last")
    assert not alike("gap 0.12", "gap 0.13")
    assert not alike("gap 0.12", "rounds 0.12")
    with pytest.raises(AssertionError, match="not printed"):
        check_output("b\na", "a\nb")
