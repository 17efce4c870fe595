import bz2
import gzip
import lzma
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scipy import sparse

from scafflix.core.errors import ScafflixError
from scafflix.data.svmlight import FEATURE_LIMIT, line_fault, read_svmlight


def written(folder: Path, content: bytes, name: str = "file.txt") -> Path:
    path = folder / name
    path.write_bytes(content)
    return path


@pytest.mark.parametrize(
    ("name", "rows", "features", "labels"),
    [
        ("mushrooms", 8124, 112, [1, 2]),
        ("a6a", 11220, 123, [-1, 1]),
        ("w6a", 17188, 300, [-1, 1]),
    ],
)
def test_the_real_files_have_the_shapes_they_are_known_for(
    shared_data: Path, name: str, rows: int, features: int, labels: list[int]
) -> None:
    read = read_svmlight(shared_data / "libsvm" / name, features)
    assert read.features.shape == (rows, features)
    assert np.unique(read.labels).tolist() == labels


def test_the_features_are_sparse_float64(tmp_path: Path) -> None:
    read = read_svmlight(written(tmp_path, b"1 1:1\n"))
    assert isinstance(read.features, sparse.csr_array)
    assert read.features.dtype == np.float64


def test_comments_blank_lines_qid_and_windows_line_ends_are_accepted(tmp_path: Path) -> None:
    content = b"# head\r\n\r\n+1 qid:3 1:2.5 4:1e-1 # why\r\n-1\r\n"
    read = read_svmlight(written(tmp_path, content))
    assert read.features.toarray().tolist() == [[2.5, 0, 0, 0.1], [0, 0, 0, 0]]
    assert read.labels.tolist() == [1, -1]


def test_declared_features_widen_the_matrix(tmp_path: Path) -> None:
    assert read_svmlight(written(tmp_path, b"1 2:1\n"), 5).features.shape == (1, 5)


@pytest.mark.parametrize(
    ("suffix", "compress"),
    [(".bz2", bz2.compress), (".xz", lzma.compress), (".gz", gzip.compress)],
)
def test_compressed_files_are_recognised_by_suffix(
    tmp_path: Path, suffix: str, compress: type
) -> None:
    path = written(tmp_path, compress(b"1 1:7\n"), f"file{suffix}")
    assert read_svmlight(path).features.toarray().tolist() == [[7.0]]


@pytest.mark.parametrize("suffix", [".bz2", ".xz", ".gz"])
def test_a_file_that_is_not_compressed_as_its_suffix_says_is_refused(
    tmp_path: Path, suffix: str
) -> None:
    with pytest.raises(ScafflixError, match="cannot be read"):
        read_svmlight(written(tmp_path, b"1 1:7\n", f"file{suffix}"))


@pytest.mark.parametrize(
    ("suffix", "compress"),
    [(".bz2", bz2.compress), (".xz", lzma.compress), (".gz", gzip.compress)],
)
def test_a_compressed_file_that_breaks_off_is_refused(
    tmp_path: Path, suffix: str, compress: type
) -> None:
    whole = compress(b"1 1:7\n" * 1000)
    with pytest.raises(ScafflixError, match="cannot be read"):
        read_svmlight(written(tmp_path, whole[: len(whole) // 2], f"file{suffix}"))


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b"x 1:1", "label 'x' is not a number"),
        (b"1,2 1:1", "label '1,2' is not a number"),
        (b"1:2 3:4", "label '1:2' is not a number"),
        (b"nan 1:1", "label 'nan' is not finite"),
        (b"-inf 1:1", "label '-inf' is not finite"),
        (b"1 3:x", "feature '3:x' is not index:value"),
        (b"1 3", "feature '3' is not index:value"),
        (b"1 3:", "feature '3:' is not index:value"),
        (b"1 :3", "feature ':3' is not index:value"),
        (b"1 1:2:3", "feature '1:2:3' is not index:value"),
        (b"1 1.5:3", "feature '1.5:3' is not index:value"),
        (b"1 1:nan", "feature '1:nan' is not finite"),
        (b"1 1:1e999", "feature '1:1e999' is not finite"),
        (b"1 0:1", "feature index 0 is below 1"),
        (b"1 -2:1", "feature index -2 is below 1"),
        (b"1 2:1 2:1", "feature index 2 comes after 2"),
        (b"1 5:1 3:1", "feature index 3 comes after 5"),
        (b"1 20000000:1", "feature index '20000000' exceeds 10000000; declare"),
        (b"1 1000000000:1", "feature index '1000000000' exceeds 10000000; declare"),
        (b"1 99999999999999999999999:1", "exceeds 10000000; declare"),
        (b"1 " + b"9" * 5000 + b":1", "is not index:value"),
        (b"\x00\xff\xfe garbage", r"label '.*xff.*' is not a number"),
    ],
)
def test_a_bad_line_is_named_by_its_number(tmp_path: Path, line: bytes, message: str) -> None:
    path = written(tmp_path, b"# head\n1 1:1\n" + line + b"\n1 1:1\n")
    with pytest.raises(ScafflixError, match=f"file.txt, line 3: .*{message}"):
        read_svmlight(path)


def test_an_index_over_the_declared_number_is_named_by_its_line(tmp_path: Path) -> None:
    path = written(tmp_path, b"1 1:1\n1 4:1\n")
    with pytest.raises(ScafflixError, match="line 2: feature index '4' exceeds the 3 features"):
        read_svmlight(path, 3)


def test_more_features_than_the_limit_may_be_declared(tmp_path: Path) -> None:
    read = read_svmlight(written(tmp_path, b"1 1000000000:1\n"), 10**9)
    assert read.features.shape == (1, 10**9)
    assert read.features.nnz == 1


def test_a_file_may_have_as_many_features_as_the_limit(tmp_path: Path) -> None:
    read = read_svmlight(written(tmp_path, b"1 %d:1\n" % FEATURE_LIMIT))
    assert read.features.shape == (1, FEATURE_LIMIT)


@pytest.mark.parametrize("features", [0, -1, 2.5, "3", 2**31])
def test_a_declared_number_that_makes_no_sense_is_refused(tmp_path: Path, features: int) -> None:
    with pytest.raises(ScafflixError, match="features is"):
        read_svmlight(written(tmp_path, b"1 1:1\n"), features)


@pytest.mark.parametrize("content", [b"", b"\n\n", b"# only a comment\n"])
def test_a_file_without_examples_is_refused(tmp_path: Path, content: bytes) -> None:
    with pytest.raises(ScafflixError, match="no examples"):
        read_svmlight(written(tmp_path, content))


def test_a_file_without_any_feature_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ScafflixError, match="no line has a feature"):
        read_svmlight(written(tmp_path, b"1\n2\n"))


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ScafflixError, match="there is no such file"):
        read_svmlight(tmp_path / "absent")


def test_a_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ScafflixError, match="cannot be read"):
        read_svmlight(tmp_path)


@given(st.binary(max_size=60) | st.text(alphabet="01:. #-+nq_id\n", max_size=60).map(str.encode))
@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_bytes_are_either_read_or_refused_with_one_sentence(
    tmp_path: Path, content: bytes
) -> None:
    path = written(tmp_path, content)
    refusal = ""
    try:
        rows = read_svmlight(path)
    except ScafflixError as error:
        refusal = str(error)
    assert "\n" not in refusal
    if not refusal:
        assert np.isfinite(rows.features.data).all()
        assert all(line_fault(line) is None for line in content.split(b"\n"))
