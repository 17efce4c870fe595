"""The tables of the pages are those that `scafflix reproduce` wrote."""

from __future__ import annotations

import doctest
import re
import runpy
from typing import Any

import pytest
from pages import ROOT

DOCS = ROOT / "docs"
TABLES: dict[str, Any] = runpy.run_path(str(DOCS / "tables.py"))
PAGES = {name: (DOCS / name).read_text() for name in TABLES["PAGES"]}
NAMED = re.compile(r'\bfile = "([^"]+)"|\]\(results/([^)#]+)\.md')


@pytest.mark.parametrize("name", PAGES)
def test_the_tables_of_a_page_are_those_of_the_files(name: str) -> None:
    assert TABLES["renewed"](PAGES[name]) == PAGES[name], "run python docs/tables.py"


@pytest.mark.parametrize("name", PAGES)
def test_every_file_of_results_that_a_page_names_is_there(name: str) -> None:
    for found in NAMED.finditer(PAGES[name]):
        assert (DOCS / "results" / f"{found[1] or found[2]}.md").is_file(), found[0]


def test_every_table_has_an_end() -> None:
    for text in PAGES.values():
        marks = re.findall(r"<!-- (table|end of table)\b", text)
        assert marks == ["table", "end of table"] * (len(marks) // 2)
    assert "<!-- table" in PAGES["results.md"]


def test_a_number_that_was_changed_by_hand_is_set_right() -> None:
    page = PAGES["results.md"]
    spoilt = page.replace("| 59.5 |", "| 99.9 |")
    assert spoilt != page
    assert TABLES["renewed"](spoilt) == page


def test_the_least_of_each_part_of_a_cell_is_bold() -> None:
    lines = [["9 / .5"], ["10 / .4 ± .1"], [""], ["9 / 3"]]
    TABLES["_mark"](lines, [(i, 0) for i in range(4)], "least")
    assert lines == [["**9** / .5"], ["10 / **.4 ± .1**"], [""], ["**9** / 3"]]


def test_a_cell_of_a_run_that_diverged_says_so() -> None:
    words = 'file = "pace"\ntable = 1\ncolumns = ["personal"]\nrows = ["by p"]\n'
    assert TABLES["made"](words).endswith("| by p | 63.5 ± 5.4 (diverged: round 5) |\n")


def test_a_row_that_no_file_has_is_refused() -> None:
    with pytest.raises(SystemExit, match=r"results/fig3c\.md has no row for"):
        TABLES["made"]('file = "fig3c"\ncolumns = ["personal"]\nrows = ["p = 7"]\n')


def test_the_example_holds() -> None:
    found = doctest.DocTestFinder().find(TABLES["made"], "made", globs=dict(TABLES))
    assert [doctest.DocTestRunner().run(one).failed for one in found] == [0]
