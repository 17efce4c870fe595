import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from scafflix.core.errors import ScafflixError
from scafflix.data.archive import read_archive


def saved(folder: Path, **arrays: Any) -> Path:
    path = folder / "archive.npz"
    np.savez(path, **arrays)
    return path


@pytest.mark.parametrize(("features", "labels"), [("features", "labels"), ("x", "y")])
def test_arrays_are_found_under_long_and_short_names(
    tmp_path: Path, features: str, labels: str
) -> None:
    rows = read_archive(saved(tmp_path, **{features: [[1, 2]], labels: [3]}))
    assert isinstance(rows.features, np.ndarray)
    assert (rows.features.tolist(), rows.labels.tolist(), rows.clients) == ([[1, 2]], [3], None)


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"x": [[1.0]]}, "no array 'labels' or 'y'; the arrays are 'x'"),
        ({"y": [1.0]}, "no array 'features' or 'x'"),
        ({"x": np.array([[{}]]), "y": [0]}, "not a readable .npz archive .*Object arrays"),
        ({"x": np.ones((2, 3, 3)), "y": [0, 1]}, r"features: an array of shape \(2, 3, 3\)"),
        ({"x": [[np.nan]], "y": [0]}, "features: row 0, column 0"),
        ({"x": [[1.0]], "y": [0, 1]}, "labels: 2 for 1 rows"),
        ({"x": [[1.0]], "y": [0], "client": ["a", "b"]}, "client: 2 for 1 rows"),
    ],
)
def test_an_unfit_archive_is_refused(tmp_path: Path, arrays: dict[str, Any], message: str) -> None:
    with pytest.raises(ScafflixError, match=message):
        read_archive(saved(tmp_path, **arrays))


@pytest.mark.parametrize("content", [b"", b"garbage", b"PK\x03\x04 garbage", b"\x80\x04K\x01."])
def test_bytes_that_are_no_archive_are_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "bad.npz"
    path.write_bytes(content)
    with pytest.raises(ScafflixError, match=r"not a readable \.npz archive"):
        read_archive(path)


def test_an_archive_that_breaks_off_is_refused(tmp_path: Path) -> None:
    path = saved(tmp_path, x=np.ones((50, 2)), y=np.ones(50))
    path.write_bytes(path.read_bytes()[:300])
    with pytest.raises(ScafflixError, match=r"not a readable \.npz archive"):
        read_archive(path)


def test_an_archive_with_a_flipped_byte_is_refused(tmp_path: Path) -> None:
    path = saved(tmp_path, x=np.ones((50, 2)), y=np.ones(50))
    content = bytearray(path.read_bytes())
    content[400] ^= 0xFF
    path.write_bytes(content)
    with pytest.raises(ScafflixError, match=r"not a readable \.npz archive"):
        read_archive(path)


def test_a_single_array_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "array.npz"
    with path.open("wb") as file:
        np.save(file, np.ones(3))
    with pytest.raises(ScafflixError, match="one array, not an archive"):
        read_archive(path)


def test_a_missing_archive_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ScafflixError, match="there is no such file"):
        read_archive(tmp_path / "absent.npz")


@pytest.mark.parametrize("kind", ["<U1", ">U1"])
def test_letters_beyond_unicode_are_refused(tmp_path: Path, kind: str) -> None:
    number = np.array([0x110000], f"{kind[0]}u4")
    path = saved(tmp_path, x=[[1.0]], y=[0], client=number.view(kind))
    with pytest.raises(ScafflixError, match="invalid characters"):
        read_archive(path)


@pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_a_compression_that_numpy_does_not_write_is_refused(tmp_path: Path, method: int) -> None:
    plain = saved(tmp_path, x=[[1.0]], y=[0])
    path = tmp_path / "odd.npz"
    with zipfile.ZipFile(plain) as source, zipfile.ZipFile(path, "w", method) as target:
        for name in source.namelist():
            target.writestr(name, source.read(name))
    with pytest.raises(ScafflixError, match="a compression that NumPy does not write"):
        read_archive(path)
