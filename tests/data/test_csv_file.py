"""CSV files as people have them are one and the same table."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from scafflix.core.errors import ScafflixError
from scafflix.data import load
from scafflix.data.csv_file import Dialect, dialect_of, line_of
from scafflix.data.table import open_table

PLAIN = 'site,dose,note,y\na,1.5,"x\ny",0\nb,-2.25,süß,1\na,3.0,süß,1\n'
SEMICOLONS = PLAIN.replace(",", ";")

SPELLINGS = {
    "plain.csv": PLAIN.encode(),
    "UPPER.CSV": PLAIN.encode(),
    "bom.csv": PLAIN.encode("utf-8-sig"),
    "windows.csv": PLAIN.replace("\n", "\r\n").replace("x\r\ny", "x\ny").encode(),
    "semicolons.csv": SEMICOLONS.encode(),
    "decimal.csv": SEMICOLONS.replace(".", ",").encode(),
    "tabs.csv": PLAIN.replace(",", "\t").encode(),
    "tabs.tsv": PLAIN.replace(",", "\t").encode(),
    "packed.csv.gz": gzip.compress(PLAIN.encode()),
    "packed.tsv.gz": gzip.compress(PLAIN.replace(",", "\t").encode()),
    "no-last-newline.csv": PLAIN.rstrip().encode(),
}


@pytest.mark.parametrize("name", SPELLINGS)
def test_all_spellings_are_the_same_table(tmp_path: Path, name: str) -> None:
    (tmp_path / "plain.csv").write_text(PLAIN)
    path = tmp_path / name
    path.write_bytes(SPELLINGS[name])
    assert open_table(path).arrow.equals(open_table(tmp_path / "plain.csv").arrow)
    assert load(path, split="column:site").clients == ("a", "b")
    assert line_of(path, 1) == 4


@pytest.mark.parametrize(
    ("text", "dialect"),
    [
        ("a;b\n1,5;2\n", Dialect(";", ",")),
        ("a;b\n1,5;2.5\n", Dialect(";", ".")),  # both: a comma may stand in a text
        ("dose, mg;b;c\n1;2;3\n", Dialect(";", ".")),
        ("a,b;c\n1,2\n", Dialect(",", ".")),
        ("a\n1\n", Dialect()),
        ("", Dialect()),
        ("a;b\n" + "1;2\n" * 998 + '1;"x\ny"\n' + "1;2\n" * 5, Dialect(";", ".")),
    ],
)
def test_a_separator_gives_every_row_as_many_fields(
    tmp_path: Path, text: str, dialect: Dialect
) -> None:
    path = tmp_path / "table.csv"
    path.write_text(text)
    assert dialect_of(path) == dialect


def test_a_folder_of_packed_files_has_their_names(tmp_path: Path) -> None:
    for name in ("st.mary", "north"):
        (tmp_path / f"{name}.csv.gz").write_bytes(gzip.compress(b"x,y\n1,0\n2,1\n"))
    assert load(tmp_path).clients == ("north", "st.mary")


def test_a_word_that_means_missing_at_one_site_is_named(tmp_path: Path) -> None:
    (tmp_path / "north.csv").write_text("age,y\n31,0\n?,1\n")
    (tmp_path / "south.csv").write_text("age,y\n31,0\n45,1\n")
    with pytest.raises(ScafflixError, match=r"north.csv: column 'age' holds text, such as '\?'"):
        load(tmp_path)
    assert load(tmp_path, missing_as=["?"]).clients == ("north", "south")


def test_a_file_that_is_no_table_is_told_what_is(tmp_path: Path) -> None:
    path = tmp_path / "table.xlsx"
    path.write_bytes(b"PK\x03\x04")
    with pytest.raises(ScafflixError, match=r"not a table, a file that ends in .csv, .*.parquet"):
        load(path, split="column:site", label="y")
