"""The way of the data: no room imports from one that comes after it."""

from __future__ import annotations

import re
from pathlib import Path

from layers import ORDER, PACKAGE, PICTURE, ROOT, edges, imported, upward


def test_every_room_stands_in_the_order() -> None:
    here = {path.name.removesuffix(".py") for path in PACKAGE.iterdir()}
    assert here - {"__init__", "__pycache__", "py.typed"} == {*ORDER}


def test_no_room_imports_what_comes_after_it() -> None:
    assert not upward(edges())


def test_an_import_inside_a_function_counts(tmp_path: Path) -> None:
    (tmp_path / "theory.py").write_text("def draw():\n    from scafflix.report import notebook\n")
    assert upward(edges(tmp_path)) == {("theory", "report"): {"theory.py"}}


def test_the_picture_in_the_docs_shows_what_is_so() -> None:
    drawn = set(re.findall(r'id="(\w+)-imports-(\w+)"', PICTURE.read_text()))
    assert drawn == set(edges()), "run: python tests/layers.py"


def test_flowers_processes_load_nothing_of_the_package() -> None:
    beside = ROOT / "src" / "scafflix_flower"
    assert not [path for path in beside.rglob("*.py") if imported(path)]
