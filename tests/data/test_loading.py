from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import sparse

from scafflix.core.errors import ScafflixError
from scafflix.data import load, synthetic

HOSPITALS = ("cleveland", "hungarian", "switzerland", "va")


@pytest.fixture
def table(tmp_path: Path) -> Path:
    path = tmp_path / "table.csv"
    path.write_text("a,b,site,label\n" + "".join(f"{i},1,s{i % 3},{i % 2}\n" for i in range(12)))
    return path


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "small.txt"
    path.write_text("1 1:5 2:1\n-1 1:6 3:1\n1 1:5 3:2\n-1 2:7\n")
    return path


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    path = tmp_path / "small.npz"
    np.savez(path, x=np.arange(8.0).reshape(4, 2), y=[0, 1, 0, 1], client=["u", "v", "v", "u"])
    return path


def test_the_four_hospitals_are_clients_by_column(shared_data: Path, tmp_path: Path) -> None:
    lines: list[str] = []
    for hospital in HOSPITALS:
        file = shared_data / "heart" / f"heart_processed.{hospital}.data"
        head, *rows = file.read_text().split()
        lines += [f"{head},hospital"] * (not lines) + [f"{row},{hospital}" for row in rows]
    path = tmp_path / "heart.csv"
    path.write_text("\n".join(lines) + "\n")
    fed = load(path, split="column:hospital", label="X14", test=0.2, intercept=False)
    assert fed.clients == HOSPITALS
    assert fed.dim == 13
    assert fed.test is not None
    assert (fed.train.counts + fed.test.counts).tolist() == [303, 294, 123, 200]


def test_a_known_file_is_split_contiguously_by_default(
    shared_data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SCAFFLIX_DATA", str(shared_data))
    fed = load("mushrooms", clients=8)
    assert fed.name == "mushrooms"
    assert fed.train.counts.tolist() == [1016] * 4 + [1015] * 4
    assert isinstance(fed.train.features, sparse.csr_array)


def test_a_table_is_split_by_its_client_column(table: Path) -> None:
    fed = load(table, split="column:site")
    assert (fed.name, fed.clients) == ("table", ("s0", "s1", "s2"))
    assert fed.dim == 3  # with the intercept


def test_a_table_without_a_client_column_is_split_by_number(table: Path) -> None:
    assert load(str(table), clients=4, split="shuffled").train.counts.tolist() == [3, 3, 3, 3]


def test_svmlight_is_split_by_a_feature_that_is_then_dropped(text: Path) -> None:
    fed = load(text, split="column:1")
    assert fed.clients == ("5", "6", "0")
    assert fed.train.features.toarray().tolist() == [[1, 0], [0, 2], [0, 1], [7, 0]]


def test_a_feature_is_split_off_a_very_wide_file_without_filling_the_memory(text: Path) -> None:
    fed = load(text, split="column:1", features=10**9)
    assert fed.train.features.shape == (4, 10**9 - 1)
    assert fed.train.features.nnz == 4


def test_bundled_data_are_split_by_a_feature_from_one() -> None:
    fed = load("wine", split="column:13")
    assert fed.dim == 12


def test_an_archive_is_split_by_its_client_array_unless_told_otherwise(archive: Path) -> None:
    assert load(archive).clients == ("u", "v")
    assert load(archive, split="column:client").clients == ("u", "v")
    assert load(archive, clients=4).clients[0] == "client-0"


def test_clients_may_repeat_the_number_that_a_column_names(table: Path) -> None:
    assert len(load(table, split="column:site", clients=3).clients) == 3


def test_synthetic_options_stand_after_the_colon() -> None:
    fed = load("synthetic:optima=2,conditioning=100,features=5,rows=7,task=linear", clients=3)
    same = synthetic(3, 7, 5, optima=2, conditioning=100, task="linear")
    assert fed.train.features.tolist() == same.train.features.tolist()
    assert fed.train.labels.tolist() == same.train.labels.tolist()


def test_synthetic_data_are_held_out_and_given_an_intercept_too() -> None:
    fed = load("synthetic:clients=3,rows=10", test=0.2, intercept=True)
    assert fed.test is not None
    assert (fed.test.counts.tolist(), fed.dim) == ([2, 2, 2], 21)


def test_a_name_wins_over_a_file_without_a_separator(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("iris").write_text("1 1:1\n")
    assert load("iris", clients=1).dim == 4
    assert load("./iris", clients=1).dim == 1
    assert load(Path("iris"), clients=1).dim == 1


def test_a_compressed_file_is_named_without_its_suffixes(tmp_path: Path) -> None:
    import bz2

    (tmp_path / "rcv1.txt.bz2").write_bytes(bz2.compress(b"1 1:1\n"))
    assert load(tmp_path / "rcv1.txt.bz2", clients=1).name == "rcv1"


def test_the_same_seed_loads_the_same_federation() -> None:
    first, again, other = (
        load("digits", clients=5, split="dirichlet:0.3", test=0.2, seed=seed) for seed in (1, 1, 2)
    )
    assert first.train.labels.tolist() == again.train.labels.tolist()
    assert first.train.labels.tolist() != other.train.labels.tolist()


def test_holding_out_leaves_the_split_alone() -> None:
    plain = load("digits", clients=5, split="shuffled")
    split = load("digits", clients=5, split="shuffled", test=0.4)
    assert split.test is not None
    for i in range(5):
        rows = np.vstack([split.train.take([i]).features, split.test.take([i]).features])
        assert sorted(rows.tolist()) == sorted(plain.train.take([i]).features.tolist())


@pytest.mark.parametrize("name", ["mushroom", "no/such/file.csv", "", "a\0b", "x" * 5000])
def test_what_is_neither_name_nor_file_is_refused_with_the_known_names(name: str) -> None:
    with pytest.raises(ScafflixError, match=r"mushrooms, a6a, w6a, digits|is a folder"):
        load(name, clients=1)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda table, text, archive: load(table), "give a number of clients, or split"),
        (lambda table, text, archive: load("iris"), "iris does not say whose rows are whose"),
        (lambda table, text, archive: load(archive, split="shuffled"), "give a number of clients"),
        (lambda table, text, archive: load(table, clients=0), "clients is 0"),
        (lambda table, text, archive: load(table, clients=13), "clients is 13, .* only 12 rows"),
        (
            lambda table, text, archive: load(table, split="column:site", clients=5),
            "clients is 5, but column:site .* names 3 clients",
        ),
        (lambda table, text, archive: load(table, split="column:z"), "no column 'z'"),
        (lambda table, text, archive: load(text, split="column:4"), "features, 1 to 3"),
        (lambda table, text, archive: load(text, split="column:site"), "features, 1 to 3"),
        (lambda table, text, archive: load(archive, split="column:x"), "no column 'x'"),
        (lambda table, text, archive: load(text, clients=1, label="y"), "is not a table"),
        (lambda table, text, archive: load(table, clients=1, features=3), "not svmlight text"),
        (lambda table, text, archive: load("iris", clients=1, features=3), "not svmlight text"),
        (lambda table, text, archive: load("synthetic", split="shuffled"), "leave split out"),
        (
            lambda table, text, archive: load("synthetic:clients=2", clients=3),
            "clients is 3, but the source says clients=2",
        ),
        (lambda table, text, archive: load(3, clients=1), "The source is 3"),
        (lambda table, text, archive: load(table, clients=1, seed=-1), "seed is -1"),
        (lambda table, text, archive: load(table, clients=1, test=1), "test is 1"),
        (lambda table, text, archive: load(table, clients=1, scale="unit"), "scale is 'unit'"),
        (lambda table, text, archive: load(table, clients=1, split="fair"), "split is 'fair'"),
    ],
)
def test_arguments_that_make_no_sense_are_refused_with_one_sentence(
    table: Path, text: Path, archive: Path, call: Callable[..., Any], message: str
) -> None:
    with pytest.raises(ScafflixError, match=message) as caught:
        call(table, text, archive)
    assert "\n" not in str(caught.value)


def test_an_only_column_cannot_be_split_off(tmp_path: Path) -> None:
    path = tmp_path / "one.txt"
    path.write_text("1 1:1\n")
    with pytest.raises(ScafflixError, match="1 rows of 0 features"):
        load(path, split="column:1")


def test_a_mistyped_argument_is_refused_before_anything_is_fetched() -> None:
    with pytest.raises(ScafflixError, match="does not say whose rows are whose"):
        load("mushrooms")


@pytest.fixture
def roles(tmp_path: Path) -> Path:
    path = tmp_path / "roles.jsonl"
    lines = (
        f'{{"play": "P", "role": "{role}", "lines": ["{"word " * words}"]}}\n'
        for role, words in (("small", 10), ("large", 400), ("middle", 200))
    )
    path.write_text("".join(lines))
    return path


def test_the_first_people_that_are_not_left_out_are_taken(roles: Path) -> None:
    fed = load(roles, clients=1, test=0.1, validation=0.1, min_examples=5)
    assert fed.clients == ("P: large",)
    assert fed.left_out == {"P: small": "fewer than 5 training rows"}


def test_taking_fewer_people_does_not_move_what_is_held_out(roles: Path) -> None:
    everyone, some = load(roles, test=0.2), load(roles, test=0.2, clients=2)
    assert everyone.take([0, 1]).train.features.tolist() == some.train.features.tolist()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"clients": 4}, r"clients is 4, but roles has 3 \(0 left out\); ask for fewer"),
        ({"split": "shuffled"}, "split is 'shuffled', but .* comes with its clients"),
        ({"scale": "standard"}, "scale is 'standard', but the examples of roles are sequences"),
        ({"intercept": True}, "intercept is asked for, but the examples of roles are"),
        ({"label": "y"}, "is not a table"),
        ({"features": 3}, "is not svmlight text"),
        ({"min_examples": 1000}, "leaves no client of roles"),
        ({"validation": 2}, "validation is 2"),
    ],
)
def test_options_that_do_not_fit_people_are_refused(
    roles: Path, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(ScafflixError, match=message):
        load(roles, **options)


def test_a_folder_without_clients_is_refused(tmp_path: Path) -> None:
    (tmp_path / "train").mkdir()
    with pytest.raises(ScafflixError, match="is a folder without the files of clients"):
        load(tmp_path)
