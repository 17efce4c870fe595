"""Tables for papers: the numbers of the records, in a table that LaTeX can read."""

from __future__ import annotations

import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import made
import numpy as np
import pytest
import typer.testing

import scafflix as sx
from scafflix.cli import app
from scafflix.core.errors import ScafflixError
from scafflix.record import Record
from scafflix.report.booktabs import escaped
from scafflix.report.curves import families


def rows(table: str) -> list[list[str]]:
    """The cells, the header first; every line of the table has as many as the table has columns."""
    shape = re.search(r"\\begin\{tabular\}\{([lr]+)\}", table)
    assert shape
    lines = [line.strip() for line in table.splitlines() if line.endswith(r"\\")]
    found = [re.split(r"(?<!\\)&", line.removesuffix(r"\\")) for line in lines]
    assert {len(cells) for cells in found} == {len(shape[1])}
    return [[cell.strip() for cell in cells] for cells in found]


def check(table: str) -> None:
    """Braces and environments close in order, math is closed, and no special letter is bare."""
    opened: list[str] = []
    for begin, name in re.findall(r"\\(begin|end)\{(\w+)\}", table):
        if begin == "begin":
            opened.append(name)
        else:
            assert opened.pop() == name
    assert not opened
    body = "\n".join(line for line in table.splitlines() if not line.startswith("%"))
    plain = re.sub(r"\\[\\{}$%#&_]", "", body)
    depth = 0
    for letter in plain:
        depth += {"{": 1, "}": -1}.get(letter, 0)
        assert depth >= 0
    assert depth == 0
    assert plain.count("$") % 2 == 0
    outside = "".join(plain.split("$")[::2])
    assert not set("_^#%~") & set(outside)
    order = [table.index(rf"\{rule}") for rule in ("toprule", "midrule", "bottomrule")]
    assert order == sorted(order)
    rows(table)


def value(cell: str) -> float:
    """The mean in a cell."""
    found = re.search(r"-?[\d.]+", cell)
    assert found
    return float(found[0])


@pytest.fixture(scope="module")
def several() -> list[Record]:
    return made.convex()


def test_several_runs_are_means_over_clients_with_the_spread_over_seeds(
    several: list[Record],
) -> None:
    table = sx.to_latex(several)
    check(table)
    head, *body = rows(table)
    assert head == ["method", r"$\alpha$", "local", "global", "personalized"]
    for family, cells in zip(families(several), body, strict=True):
        scores = [100 * np.nanmean(one.clients["test_personal"]) for one in family.records]
        mean, spread = np.mean(scores), np.std(scores, ddof=1)
        assert cells[-1].replace(r"\mathbf{", "").strip("$}") == rf"{mean:.1f} \pm {spread:.1f}"
    assert "over 2 seeds" in table
    assert r"Test accuracy in \% on iris (softmax model, 5 clients, 40 rounds)." in table


def test_the_best_of_a_column_is_in_bold_and_equals_are_all_bold_or_none(
    several: list[Record],
) -> None:
    _, *body = rows(sx.to_latex(several, target=1e-2))
    for column in range(2, len(body[0])):
        cells = [row[column] for row in body if row[column] != "--"]
        values = [value(cell) for cell in cells]
        best = min(values) if column >= 5 else max(values)
        for cell, one in zip(cells, values, strict=True):
            assert (r"\mathbf" in cell) == (len(set(values)) > 1 and one == best)


def test_rounds_to_a_target_are_counted_and_those_that_miss_it_have_none(
    several: list[Record],
) -> None:
    table = sx.to_latex(several, target=1e-2)
    check(table)
    head, *body = rows(table)
    assert head[-2:] == ["rounds", "MB"]
    for family, cells in zip(families(several), body, strict=True):
        counts = [one.rounds_to(1e-2) for one in family.records]
        if None in counts:
            assert cells[-2:] == ["--", "--"]
        else:
            assert value(cells[-2]) == pytest.approx(np.mean([c for c in counts if c]), abs=0.51)
    assert "until the objective gap is 0.01" in table
    assert "$10^{-9}$" in sx.to_latex(several, target=1e-9)


def test_one_run_is_a_row_a_model_with_the_spread_over_clients() -> None:
    for record in (made.convex()[0], made.network()):
        table = record.to_latex()
        check(table)
        head, *body = rows(table)
        assert [row[0] for row in body] == ["local", "global", "personalized"]
        assert head[-1] == "calibration error"
        for kind, cells in zip(("local", "global", "personal"), body, strict=True):
            scores = 100 * record.clients[f"test_{kind}"]
            words = rf"{scores.mean():.1f} \pm {scores.std(ddof=1):.1f}"
            assert words in cells[1]
            error = record.summary["calibration"][kind]["error"]
            assert value(cells[-1]) == pytest.approx(error, abs=0.0006)
        assert "interval of the personalized mean" in table


def test_several_data_sets_are_groups_with_their_own_best() -> None:
    records = [made.numbers(method, data=data) for data in "ab" for method in ("gd", "scafflix")]
    table = sx.to_latex(records)
    check(table)
    assert table.count(r"\midrule") == 2
    _, *body = rows(table)
    assert [row[0] for row in body] == ["a", "", "b", ""]
    for group in (body[:2], body[2:]):
        assert sum(r"\mathbf" in row[-1] for row in group) == 1


def test_any_name_is_printed_as_it_is() -> None:
    strange = r"50%_of {a}\b & c#1 ~^ <d> $x$ |e|"
    table = sx.to_latex([made.numbers(data=strange, method=m) for m in ("gd", "a_b:0.1")])
    check(table)
    assert r"50\%\_of \{a\}\textbackslash{}b \& c\#1" in table
    assert r"a\_b:0.1" in table
    assert escaped("two\nlines") == "two lines"


def test_records_that_cannot_stand_in_one_table_are_refused() -> None:
    with pytest.raises(ScafflixError, match="says nothing of how good the clients' models are"):
        made.deployment().to_latex()
    with pytest.raises(ScafflixError, match="at least one run"):
        sx.to_latex([])
    with pytest.raises(ScafflixError, match="a list of records"):
        sx.to_latex(["runs/iris"])  # type: ignore[list-item]
    with pytest.raises(ScafflixError, match="give a list of records"):
        sx.to_latex(made.numbers())  # type: ignore[arg-type]
    with pytest.raises(ScafflixError, match="a network has no objective gap"):
        sx.to_latex([made.network()], target=1e-3)
    one = made.numbers()
    other = replace(one, summary={**one.summary, "metric": "squared error"})
    with pytest.raises(ScafflixError, match="test accuracy and test squared error"):
        sx.to_latex([one, other])


def call(*words: str) -> Any:
    return typer.testing.CliRunner().invoke(app, list(words))


WORDS = (
    "compare --data iris --clients 3 --split shuffled --scale standard --test 0.3 --model softmax "
    "--methods gd,scafflix --alphas 0.5 --seeds 2 --rounds 4 --target 0.5"
)
COMPARE = WORDS.split()


def test_compare_and_report_write_the_same_table(tmp_path: Path) -> None:
    inside, beside = tmp_path / "runs" / "table.tex", tmp_path / "new" / "table.tex"
    done = call(*COMPARE, "--out", str(tmp_path / "runs"), "--latex", str(inside))
    assert f"table: {inside}" in done.output, done.exception
    call(*["report", str(tmp_path / "runs"), "-o", str(tmp_path / "page.html"), "--target", "0.5"],
         "--latex", str(beside))  # fmt: skip
    assert inside.read_text() == beside.read_text()
    check(inside.read_text())
    assert "over 2 seeds" in inside.read_text()


def test_a_table_that_cannot_be_written_is_refused_before_anything_runs(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for place, words in ((tmp_path, "is a folder"), (tmp_path / "file" / "t.tex", "is a file")):
        done = call(*COMPARE, "--out", str(tmp_path / "runs"), "--latex", str(place))
        assert isinstance(done.exception, ScafflixError)
        assert words in str(done.exception)
        assert not (tmp_path / "runs").exists()


def test_latex_itself_reads_the_tables(tmp_path: Path) -> None:
    program = shutil.which("pdflatex") or shutil.which("tectonic")
    if program is None:
        pytest.skip("no LaTeX on this machine")
    tables = [sx.to_latex(made.convex(), target=1e-2), made.network().to_latex()]
    document = r"\documentclass{article}\usepackage{booktabs}\begin{document}%s\end{document}"
    (tmp_path / "paper.tex").write_text(document % "\n".join(tables))
    subprocess.run([program, "paper.tex"], cwd=tmp_path, check=True, capture_output=True)
