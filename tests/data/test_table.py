from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as parquet
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from scafflix.core.errors import ScafflixError
from scafflix.data import Federation, admission, load
from scafflix.data.federation import Examples


def federation(path: Path, client: str | None = None, **options: Any) -> Federation:
    """The rows as they are, of one client unless a column says whose they are."""
    whose = {"clients": 1} if client is None else {"split": f"column:{client}"}
    asked: dict[str, Any] = {"scale": "none", "intercept": False, **whose, **options}
    return load(path, **asked)


def read_table(path: Path, client: str | None = None, **options: Any) -> Examples:
    return federation(path, client, **options).train


def csv(folder: Path, text: str | bytes) -> Path:
    path = folder / "table.csv"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def columns(folder: Path, table: pa.Table | dict[str, object]) -> Path:
    path = folder / "table.parquet"
    parquet.write_table(table if isinstance(table, pa.Table) else pa.table(table), path)
    return path


def test_numbers_and_booleans_are_features_in_the_order_of_the_columns(tmp_path: Path) -> None:
    rows = read_table(csv(tmp_path, "b,label,a,c\n1.5,0,2,true\n3,1,4,false\n"))
    assert isinstance(rows.features, np.ndarray)
    assert rows.features.tolist() == [[1.5, 2, 1], [3, 4, 0]]


def test_text_becomes_one_feature_for_each_value_in_sorted_order(tmp_path: Path) -> None:
    rows = read_table(csv(tmp_path, "c,label\nred,0\nblue,1\ngreen,1\n"))
    assert isinstance(rows.features, np.ndarray)
    assert rows.features.tolist() == [[0, 0, 1], [1, 0, 0], [0, 1, 0]]


@pytest.mark.parametrize("name", ["label", "target", "y"])
def test_a_label_column_is_found_under_its_usual_names(tmp_path: Path, name: str) -> None:
    assert read_table(csv(tmp_path, f"a,{name}\n1,7\n")).labels.tolist() == [7]


def test_labels_may_be_text(tmp_path: Path) -> None:
    assert read_table(csv(tmp_path, "a,y\n1,yes\n2,no\n")).labels.tolist() == ["yes", "no"]


def test_the_client_column_is_no_feature_and_is_kept_as_spelt(tmp_path: Path) -> None:
    fed = federation(csv(tmp_path, "a,y,site\n1,0,007\n2,1,7\n"), client="site")
    assert fed.train.features.shape == (2, 1)
    assert fed.clients == ("007", "7")


def test_a_column_may_turn_from_whole_to_real_numbers_late_in_a_large_file(tmp_path: Path) -> None:
    text = "a,y\n" + "1,0\n" * 400_000 + "1.5,1\n"
    rows = read_table(csv(tmp_path, text))
    assert isinstance(rows.features, np.ndarray)
    assert rows.features[-1].tolist() == [1.5]


def test_parquet_gives_the_same_rows_as_csv(tmp_path: Path) -> None:
    text = federation(csv(tmp_path, "a,c,y,site\n1.5,u,0,A\n2,v,1,B\n"), client="site")
    table = {"a": [1.5, 2.0], "c": ["u", "v"], "y": [0, 1], "site": ["A", "B"]}
    binary = federation(columns(tmp_path, table), client="site")
    assert isinstance(text.train.features, np.ndarray)
    assert isinstance(binary.train.features, np.ndarray)
    assert text.train.features.tolist() == binary.train.features.tolist()
    assert text.train.labels.tolist() == binary.train.labels.tolist()
    assert text.clients == binary.clients


def test_parquet_dictionaries_and_decimals_are_read(tmp_path: Path) -> None:
    table = pa.table(
        {
            "c": pa.array(["u", "v", "u"]).dictionary_encode(),
            "d": pa.array([1, 2, 3], pa.decimal128(5, 2)),
            "y": [0, 1, 0],
        }
    )
    rows = read_table(columns(tmp_path, table))
    assert isinstance(rows.features, np.ndarray)
    assert rows.features.tolist() == [[1, 0, 1], [0, 1, 2], [1, 0, 3]]


def test_a_folder_named_like_a_partition_adds_no_column(tmp_path: Path) -> None:
    folder = tmp_path / "site=3"
    folder.mkdir()
    assert read_table(columns(folder, {"a": [1.0], "y": [0]})).features.shape == (1, 1)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a,y\n1,0\n,1\n", "line 3: column 'a' has a missing value"),
        ("a,y\n1,0\n\n\nNaN,1\n", "line 5: column 'a' has a missing value"),
        ("a,c,y\n1,u,0\n2,NA,0\n", "line 3: column 'c' has a missing value"),
        ('a,c,y\n1,"u\nv",0\n2,,0\n', "line 4: column 'c' has a missing value"),
        ('a,c,y\n1,u,0\n2,"",0\n', "line 3: column 'c' has a missing value"),
        ("a,y\n1,\n", "line 2: column 'y' has a missing value"),
        ("a,y\n1,0\ninf,1\n", "line 3: column 'a' is inf"),
        ("a,y\n1,0\n1,-inf\n", "line 3: column 'y' is -inf"),
        ("a,y,y\n1,0,0\n", "2 columns are named 'y'"),
        ("a,b\n1,0\n", "no column 'label', 'target' or 'y'.* among 'a', 'b'"),
        ("a,label,y\n1,0,0\n", "both 'label' and 'y'"),
        ("y\n1\n", "no column is left as a feature"),
        ("a,y\n", "the table has no rows"),
        ("", "not a readable CSV table"),
        ("a,y\n1,2,3\n", "not a readable CSV table .*Row #2: Expected 2 columns"),
        ("a,y\n12:30:00,0\n", "column 'a' is of type time"),
        ("a,y\n1,2020-01-01\n", "column 'y' holds dates"),
        (b"a,y\n\xff,0\n", "column 'a' is not in UTF-8; save"),
        (b"\xff\xfea,y\n1,0\n", "table.csv: its text is not in UTF-8"),
        (b"a\xe4,y\n1,0\n", "table.csv: its header is not in UTF-8"),
        (",a,y\n0,1,0\n1,2,1\n", "column 1 has no name"),
        ("a,y\n1,0\n2.5,0\n?,1\n", "column 'a' holds numbers and .*: if that means missing"),
        ("a;y\n1;0\n2;0\nx;1\n3.5;1\n", "column 'a' holds numbers and 'x'"),
        ('a,y\n"1,250.5",0\n"2,100",0\n', "holds '1,250.5': write numbers with a decimal point"),
        ("a,y\n31.12.2023,0\n1.1.2024,0\n", "holds '1.1.2024': write dates as 2024-12-31"),
        ("a,y\n12/31/23,0\n1/1/24,0\n", "write dates as 2024-12-31; if its values stand for"),
    ],
)
def test_an_unfit_csv_is_refused_by_column_and_line(
    tmp_path: Path, text: str | bytes, message: str
) -> None:
    with pytest.raises(ScafflixError, match=message):
        read_table(csv(tmp_path, text), missing="refuse")


def test_a_quoted_na_is_a_value(tmp_path: Path) -> None:
    rows = read_table(csv(tmp_path, 'c,y\n"NA",0\nFR,1\n'))
    assert isinstance(rows.features, np.ndarray)
    assert rows.features.tolist() == [[0, 1], [1, 0]]


def test_a_missing_client_is_refused_by_line(tmp_path: Path) -> None:
    with pytest.raises(ScafflixError, match="line 3: column 'site' has a missing value"):
        read_table(csv(tmp_path, "a,y,site\n1,0,A\n1,0,\n"), client="site")


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"a": [1.0, None], "y": [0, 1]}, "row 2: column 'a' has a missing value"),
        ({"a": [1.0, float("nan")], "y": [0, 1]}, "row 2: column 'a' has a missing value"),
        ({"a": [None, None], "y": [0, 1]}, "row 1: column 'a' has a missing value"),
        ({"a": [[1], [2]], "y": [0, 1]}, "column 'a' is of type list"),
    ],
)
def test_an_unfit_parquet_is_refused_by_column_and_row(
    tmp_path: Path, table: dict[str, object], message: str
) -> None:
    with pytest.raises(ScafflixError, match=message):
        read_table(columns(tmp_path, table), missing="refuse")


def test_parquet_with_two_columns_of_one_name_is_refused(tmp_path: Path) -> None:
    table = pa.Table.from_arrays([pa.array([1]), pa.array([2]), pa.array([0])], ["a", "a", "y"])
    with pytest.raises(ScafflixError, match="2 columns are named 'a'"):
        read_table(columns(tmp_path, table))


def test_a_file_that_is_no_parquet_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "table.parquet"
    path.write_bytes(b"not at all")
    with pytest.raises(ScafflixError, match="not a readable Parquet table"):
        read_table(path)


def test_a_text_column_with_many_values_is_taken_for_an_identifier(tmp_path: Path) -> None:
    text = "who,y\n" + "".join(f"n{i},0\n" for i in range(101))
    with pytest.raises(ScafflixError, match=r"'who' has 101 distinct values, .*an identifier"):
        read_table(csv(tmp_path, text))


@pytest.mark.parametrize("arguments", [{"label": "z"}, {"client": "z"}])
def test_a_column_that_does_not_exist_is_refused_with_those_that_do(
    tmp_path: Path, arguments: dict[str, str]
) -> None:
    with pytest.raises(ScafflixError, match="no column 'z'; the columns are 'a', 'y'"):
        read_table(csv(tmp_path, "a,y\n1,0\n"), **arguments)


def test_one_column_cannot_be_both_label_and_client(tmp_path: Path) -> None:
    with pytest.raises(ScafflixError, match="column 'y' is to be both label and client"):
        read_table(csv(tmp_path, "a,y\n1,0\n"), client="y")


def test_a_table_too_large_to_be_dense_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(admission, "DENSE_LIMIT", 1)
    with pytest.raises(ScafflixError, match="1 rows of 2 dense features exceed 1 entries"):
        read_table(csv(tmp_path, "a,b,y\n1,1,0\n"))


def test_a_missing_table_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ScafflixError, match="There is no data set or file"):
        read_table(tmp_path / "absent.csv")


@given(st.binary(max_size=60) | st.text(alphabet='ay,"\n01.-', max_size=60).map(str.encode))
@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_bytes_are_either_read_or_refused_with_one_sentence(
    tmp_path: Path, content: bytes
) -> None:
    path = csv(tmp_path, b"a,y\n" + content)
    refusal = ""
    try:
        rows = read_table(path)
    except ScafflixError as error:
        refusal = str(error)
    assert "\n" not in refusal
    if not refusal:
        assert rows.features.shape[0] == len(rows.labels) > 0
