from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import pytest

from scafflix.core.cache import cache_folder
from scafflix.core.errors import ScafflixError
from scafflix.data import known, load, locate
from scafflix.data.catalogue import CATALOGUE, SCIKIT_LEARN, KnownFile


def test_every_bundled_name_has_the_shape_the_catalogue_says() -> None:
    for entry in known():
        if entry.source == SCIKIT_LEARN:
            fed = load(entry.name, clients=2)
            assert fed.train.features.shape == (entry.rows, entry.features)
            if entry.classes is not None:
                assert len(set(fed.train.labels.tolist())) == entry.classes


@pytest.mark.parametrize("name", ["mushrooms", "a6a", "w6a"])
def test_the_real_files_have_the_checksum_and_shape_the_catalogue_says(
    shared_data: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SCAFFLIX_DATA", str(shared_data))
    path = locate(name)
    assert path == shared_data / "libsvm" / name
    assert sha256(path.read_bytes()).hexdigest() == CATALOGUE[name].files[0].sha256
    shape = load(name, clients=3).train.features.shape
    assert shape == (CATALOGUE[name].rows, CATALOGUE[name].features)


def test_a_file_directly_in_the_data_folder_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SCAFFLIX_DATA", str(tmp_path))
    (tmp_path / "a6a").write_text("1 1:1\n")
    assert locate("a6a") == tmp_path / "a6a"


def test_the_users_own_file_needs_no_checksum(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SCAFFLIX_DATA", str(tmp_path))
    (tmp_path / "a6a").write_text("1 1:1\n-1 2:1\n")
    assert load("a6a", clients=2).train.features.shape == (2, 123)


def test_a_cached_file_is_found_when_its_checksum_is_right(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = cache / "libsvm" / "a6a"
    path.parent.mkdir(parents=True)
    path.write_bytes(b"1 1:1\n")
    file = KnownFile("a6a", sha256(b"1 1:1\n").hexdigest())
    right = replace(CATALOGUE["a6a"], files=(file,))
    monkeypatch.setitem(CATALOGUE, "a6a", right)
    assert locate("a6a") == path


def test_a_cached_file_with_a_wrong_checksum_is_not_used(cache: Path) -> None:
    path = cache / "libsvm" / "a6a"
    path.parent.mkdir(parents=True)
    path.write_bytes(b"1 1:1\n")
    with pytest.raises(ScafflixError, match=r"checksum is wrong, so it is not used.*fetch a6a"):
        load("a6a", clients=1)


def test_a_file_that_is_nowhere_is_not_located() -> None:
    assert locate("a6a") is None


def test_what_scikit_learn_bundles_has_no_file() -> None:
    assert locate("iris") is None


def test_a_data_folder_that_does_not_exist_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SCAFFLIX_DATA", "/no/such/folder")
    with pytest.raises(ScafflixError, match="SCAFFLIX_DATA is '/no/such/folder', which is not a"):
        locate("a6a")


def test_an_unknown_name_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ScafflixError, match="no data set 'a7a'; the known names are mushrooms"):
        locate("a7a")


def test_the_cache_follows_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SCAFFLIX_CACHE", "/own")
    monkeypatch.setenv("XDG_CACHE_HOME", "/xdg")
    assert cache_folder() == Path("/own")
    monkeypatch.delenv("SCAFFLIX_CACHE")
    assert cache_folder() == Path("/xdg/scafflix")
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert cache_folder() == Path("~/.cache/scafflix").expanduser()


@pytest.mark.parametrize(
    ("name", "file", "clients"),
    [
        ("femnist", "femnist_300_writers.npz", 300),
        ("shakespeare", "shakespeare_roles.jsonl.gz", 1188),
    ],
)
def test_people_in_the_data_folder_are_found_whatever_their_format(
    shared_data: Path, name: str, file: str, clients: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SCAFFLIX_DATA", str(shared_data))
    assert locate(name) == shared_data / name / file
    fed = load(name)
    assert (fed.name, len(fed.clients)) == (name, clients)


def test_a_release_in_the_data_folder_is_found_as_a_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SCAFFLIX_DATA", str(tmp_path))
    (tmp_path / "femnist").mkdir()
    (tmp_path / "femnist" / "README").write_text("nothing to read")
    assert locate("femnist") is None
    (tmp_path / "femnist" / "federated_emnist_train.sqlite").touch()
    assert locate("femnist") == tmp_path / "femnist"
