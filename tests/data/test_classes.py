"""Clients that keep a share of their classes."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from scafflix.core.errors import ScafflixError
from scafflix.data import Federation, from_arrays, load

RANDOM = np.random.default_rng(0)
OWNERS = RANDOM.integers(0, 5, 400)
LABELS = RANDOM.integers(0, 10, 400)
ROWS = np.arange(400.0)[:, None]


def made(**options: Any) -> Federation:
    return from_arrays(ROWS, LABELS, OWNERS, **{"split": "classes:0.33", "test": 0.2, **options})


def classes(federation: Federation, client: int, *parts: str) -> set[Any]:
    """That a client has in these parts, or in all."""
    found = [federation.parts[part].take([client]).labels for part in parts or federation.parts]
    return set(np.concatenate(found).tolist())


def test_a_client_keeps_all_its_examples_of_a_third_of_its_classes() -> None:
    whole, some = from_arrays(ROWS, LABELS, OWNERS), made(test=0.0)
    assert some.clients == whole.clients
    for client in range(5):
        before, after = whole.train.take([client]), some.train.take([client])
        kept = classes(some, client)
        assert len(kept) == 3  # of ten
        mine = before.features[np.isin(before.labels, list(kept))]
        np.testing.assert_array_equal(after.features, mine)


def test_no_part_has_another_class_of_a_client() -> None:
    some = made(validation=0.2)
    assert set(some.parts) == {"train", "test", "validation"}
    kept = [classes(some, client) for client in range(5)]
    assert [len(one) for one in kept] == [3] * 5
    assert len(set(map(frozenset, kept))) > 1  # each draws its own


def test_the_seed_draws_the_classes() -> None:
    kept = [[classes(made(seed=s), i) for i in range(5)] for s in (1, 1, 2)]
    assert kept[0] == kept[1] != kept[2]


def test_at_least_one_class_is_kept() -> None:
    some = made(split="classes:0.001")
    assert [len(classes(some, client)) for client in range(5)] == [1] * 5


def test_an_archive_and_a_folder_of_tables_come_with_their_clients(tmp_path: Path) -> None:
    np.savez(tmp_path / "rows.npz", features=ROWS, labels=LABELS, client=OWNERS)
    archive = load(tmp_path / "rows.npz", split="classes:0.33")
    np.testing.assert_array_equal(archive.train.features, made(test=0.0).train.features)
    folder = tmp_path / "sites"
    folder.mkdir()
    for site in "ab":
        lines = [f"{row},{row % 4}" for row in range(20)]
        (folder / f"{site}.csv").write_text("\n".join(["age,label", *lines]))
    tables = load(folder, split="classes:0.5")
    assert [len(classes(tables, client)) for client in range(2)] == [2, 2]
    assert tables.train.counts.tolist() == [10, 10]


def test_writers_keep_their_own_test_images_of_the_same_classes(miniatures: Path) -> None:
    file = miniatures / "femnist" / "femnist_300_writers.npz"
    whole, some = load(file), load(file, split="classes:0.5")
    assert some.clients == whole.clients
    for client in range(len(some.clients)):
        kept, had = classes(some, client, "train"), classes(whole, client, "train")
        assert len(kept) == round(0.5 * len(had))
        tested = classes(whole, client, "test") & kept
        assert classes(some, client, "test") == tested


def test_fewer_writers_draw_the_same_classes(miniatures: Path) -> None:
    file = miniatures / "femnist" / "femnist_300_writers.npz"
    few, all_of_them = (load(file, split="classes:0.5", clients=n) for n in (2, None))
    assert [classes(few, i) for i in (0, 1)] == [classes(all_of_them, i) for i in (0, 1)]


def test_real_writers_become_unlike(shared_data: Path) -> None:
    file = shared_data / "femnist" / "femnist_300_writers.npz"
    whole, some = load(file), load(file, split="classes:0.33")
    assert len(some.clients) == 300
    had = [len(classes(whole, client, "train")) for client in range(300)]
    kept = [len(classes(some, client, "train")) for client in range(300)]
    assert kept == [max(1, round(0.33 * number)) for number in had]
    assert 0.25 < len(some.train.labels) / len(whole.train.labels) < 0.4


@pytest.mark.parametrize("share", ["0", "1", "-0.5", "nan", "third", ""])
def test_a_share_outside_of_zero_to_one_is_refused(share: str) -> None:
    with pytest.raises(ScafflixError, match=r"share of split='classes:SHARE' is .*above 0"):
        made(split=f"classes:{share}")


def test_rows_without_clients_sequences_and_numbers_to_predict_are_refused(
    miniatures: Path,
) -> None:
    with pytest.raises(ScafflixError, match="for data that come with their clients"):
        load("digits", clients=5, split="classes:0.5")
    with pytest.raises(ScafflixError, match="give a number of clients"):
        load("digits", split="classes:0.5")
    roles = miniatures / "shakespeare" / "shakespeare_roles.jsonl.gz"
    with pytest.raises(ScafflixError, match=r"labels of 'shakespeare_roles.*' are sequences"):
        load(roles, split="classes:0.5")
    numbers = np.arange(1001.0)
    with pytest.raises(ScafflixError, match="are numbers to predict"):
        from_arrays(numbers[:, None], numbers, np.zeros(1001), split="classes:0.5")
