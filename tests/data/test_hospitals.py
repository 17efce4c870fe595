"""The four hospitals, prepared as in FLamby, and the mine fields."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from scipy.io import savemat

from scafflix.core.errors import ScafflixError
from scafflix.data import fetch, load

PATIENT = "63,1,4,145,233,1,2,150,0,2.3,3,0,6,2"
HEALTHY = "40,0,1,120,200,0,0,170,1,0.5,?,-9,-9.0,0"
LACKING = "41,0,2,?,200,0,1,170,1,0.5,1,0,3,0"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SCAFFLIX_DATA", str(tmp_path))
    (tmp_path / "heart").mkdir()
    (tmp_path / "landmine").mkdir()
    return tmp_path


def test_kinds_become_indicators_and_patients_with_missing_values_are_left_out(
    folder: Path,
) -> None:
    lines = "\n".join([PATIENT, HEALTHY, LACKING])
    (folder / "heart" / "processed.va.data").write_text(lines)
    header = ",".join(f"X{k}" for k in range(1, 15))
    (folder / "heart" / "heart_processed.basel.data").write_text(f"{header}\n{PATIENT}\n")
    fed = load("heart")
    assert fed.clients == ("basel", "va")
    assert fed.train.counts.tolist() == [1, 2]
    expected = [
        [63, 1, 145, 233, 1, 150, 0, 2.3, 0, 0, 1, 0, 1],
        [40, 0, 120, 200, 0, 170, 1, 0.5, 0, 0, 0, 0, 0],
    ]
    np.testing.assert_array_equal(fed.train.features[1:], expected)
    assert fed.train.labels.tolist() == [1, 1, 0]


def test_the_real_hospitals_have_the_published_numbers(
    shared_data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SCAFFLIX_DATA", str(shared_data))
    fed = load("heart")
    assert dict(zip(fed.clients, fed.train.counts.tolist(), strict=True)) == {
        "cleveland": 303,
        "hungarian": 261,
        "switzerland": 46,
        "va": 130,
    }
    owners = np.repeat(np.arange(4), fed.train.counts)
    assert np.bincount(owners, fed.train.labels).tolist() == [139, 98, 45, 101]
    assert fed.dim == 13


def test_the_real_fields_are_read(shared_data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SCAFFLIX_DATA", str(shared_data))
    fed = load("landmine")
    assert (len(fed.clients), fed.dim, len(fed.train.labels)) == (29, 9, 14820)
    assert int(fed.train.labels.sum()) == 904


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"1,2,3", "line 1: 3 columns; there must be 14"),
        (PATIENT.replace("63", "old").encode(), "line 1: there is a word; give numbers"),
        (PATIENT.replace("63", "inf").encode(), "a number is not finite"),
        (b"\xff\xfe", "is not text"),
    ],
)
def test_a_broken_file_of_a_hospital_is_refused(folder: Path, content: bytes, words: str) -> None:
    (folder / "heart" / "processed.va.data").write_bytes(content)
    with pytest.raises(ScafflixError, match=words):
        load("heart")


def test_another_matlab_file_is_refused(folder: Path) -> None:
    savemat(folder / "landmine" / "mines.mat", {"feature": np.eye(2)})
    with pytest.raises(ScafflixError, match=r"is not the published LandmineData.mat"):
        load("landmine")


def test_what_nobody_offers_is_not_fetched(cache: Path) -> None:
    with pytest.raises(ScafflixError, match="heart is not fetched; put its files into the folder"):
        fetch("heart")
