import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from scafflix.core.errors import ScafflixError
from scafflix.data import load
from scafflix.data.text import decode

VERSE = "The quality of mercy is not strain'd, It droppeth as the gentle rain from heaven"


def leaf(examples: dict[str, tuple[list[Any], list[Any]]], /, **changes: Any) -> dict[str, Any]:
    return {
        "users": list(examples),
        "num_samples": [len(x) for x, _ in examples.values()],
        "user_data": {user: {"x": x, "y": y} for user, (x, y) in examples.items()},
        **changes,
    }


def image(share: float) -> list[float]:
    return [share] * 784


def written(path: Path, content: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


WRITERS = {"u": ([image(0.2), image(1.0)], [0, 61]), "v": ([image(0.0)], [7])}


def test_images_become_bytes_with_white_255(tmp_path: Path) -> None:
    fed = load(written(tmp_path / "all_data_0.json", leaf(WRITERS)))
    assert fed.clients == ("u", "v")
    assert fed.train.features.shape == (3, 28, 28)
    assert (fed.train.features.dtype, fed.train.labels.dtype) == (np.uint8, np.int8)
    assert fed.train.features[:, 5, 5].tolist() == [51, 255, 0]
    assert fed.train.labels.tolist() == [0, 61, 7]


def test_the_files_of_a_folder_are_read_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    for number in (10, 2, 0):
        users = {f"user-{number}": ([image(0.5)], [1])}
        written(tmp_path / "leaf" / f"all_data_{number}.json", leaf(users))
    fed = load(tmp_path / "leaf")
    assert (fed.name, fed.clients, fed.test) == ("leaf", ("user-0", "user-2", "user-10"), None)


def test_a_folder_of_train_and_test_brings_its_test_part(tmp_path: Path) -> None:
    written(tmp_path / "train" / "all_data_0_train_9.json", leaf(WRITERS))
    written(
        tmp_path / "test" / "all_data_0_test_9.json",
        leaf({"w": ([image(0.5)], [3]), "v": ([image(0.5)], [4]), "u": ([], [])}),
    )
    fed = load(tmp_path)
    assert fed.test is not None
    assert (fed.clients, fed.test.counts.tolist()) == (("u", "v"), [0, 1])
    assert fed.test.labels.tolist() == [4]
    assert fed.left_out == {"w": "no training rows"}
    with pytest.raises(ScafflixError, match="brings a test part"):
        load(tmp_path, test=0.5)


def test_texts_are_labelled_with_themselves_shifted_by_one(tmp_path: Path) -> None:
    assert len(VERSE) == 80
    fed = load(written(tmp_path / "plays.json", leaf({"PORTIA": ([VERSE], ["\n"])})))
    assert fed.train.features.shape == fed.train.labels.shape == (1, 80)
    assert decode(fed.train.features) == VERSE
    assert decode(fed.train.labels) == VERSE[1:] + "\n"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('{"users":\n[}', "line 2: not valid JSON"),
        ("[" * 100_000, "not valid JSON"),
        ([], "not a JSON object"),
        ({"users": []}, "'num_samples' is missing or not a list"),
        (leaf(WRITERS, user_data=[]), "'user_data' is missing or not a dict"),
        (leaf(WRITERS, num_samples=[2]), "2 users but 1 num_samples"),
        (leaf(WRITERS, num_samples=[2, 3]), "client 'v': num_samples is 3, but there are 1"),
        (leaf(WRITERS, users=["u", "w"]), "client 'w': among the users, but not in user_data"),
        (leaf(WRITERS, users=["u", "u"]), "client 'u': the id is not text, or occurs twice"),
        (leaf(WRITERS, users=["u"], num_samples=[2]), "client 'v': in user_data, but not among"),
        (leaf({"u": ([image(0.5)], [])}), "client 'u': 1 examples in x but 0 labels in y"),
        (leaf({"u": ([image(0.5)], [62])}), r"client 'u': label 0 \(from 0\) is 62; .* 0 to 61"),
        (leaf({"u": ([image(0.5)], [10**30])}), r"client 'u': label 0 \(from 0\) is 10000"),
        (leaf({"u": ([image(0.5)], ["a"])}), r"client 'u': label 0 \(from 0\) is 'a'"),
        (leaf({"u": ([image(0.5)], [True])}), r"client 'u': label 0 \(from 0\) is True"),
        (leaf({"u": ([[0.5] * 783], [1])}), r"client 'u': images of 783 pixels"),
        (leaf({"u": ([image(0), [0.5]], [1, 1])}), r"client 'u': image 1 .* has 1 pixels"),
        (leaf({"u": ([image(1.5)], [1])}), r"client 'u': image 0 .* has a pixel 1.5"),
        (leaf({"u": ([image(float("nan"))], [1])}), "has a pixel nan"),
        (leaf({"u": ([[None] * 784], [1])}), "client 'u': .* has a pixel nan"),
        (
            leaf({"u": ([[10**400] * 784], [1])}),
            "client 'u': 'x' holds something that is not a number",
        ),
        (leaf({"u": ([3], [1])}), "client 'u': image 0 .* has no pixels"),
        (leaf({"u": (["short"], ["a"])}), r"client 'u': text 0 \(from 0\) has 5 characters"),
        (leaf({"u": ([VERSE], ["ab"])}), r"client 'u': label 0 \(from 0\) is 'ab'"),
        (leaf({"u": ([VERSE], [1])}), r"client 'u': label 0 \(from 0\) is 1"),
        (leaf({}, user_data={"u": 3}, users=["u"], num_samples=[1]), "'x' or 'y' is missing"),
        (leaf({"u": ([], [])}), "no client has training rows"),
        (
            leaf({"u": ([image(0.5)], [1]), "v": ([VERSE], ["a"])}),
            "Client 'v' has 80 features, but client 'u' has 28 x 28",
        ),
    ],
)
def test_an_inconsistent_file_is_refused_with_its_client(
    tmp_path: Path, content: Any, message: str
) -> None:
    with pytest.raises(ScafflixError, match=message) as caught:
        load(written(tmp_path / "all_data_0.json", content))
    assert "\n" not in str(caught.value)
    assert "all_data_0.json" in str(caught.value)


def test_bytes_that_are_no_text_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "all_data_0.json"
    path.write_bytes(b'{"users": ["\xff"]}')
    with pytest.raises(ScafflixError, match="not valid JSON"):
        load(path)


def test_a_client_in_two_files_is_refused(tmp_path: Path) -> None:
    for number in range(2):
        written(tmp_path / f"all_data_{number}.json", leaf(WRITERS))
    with pytest.raises(ScafflixError, match=r"all_data_1.json, client 'u': is in another file"):
        load(tmp_path)


def test_the_real_sample_is_read_whole(shared_data: Path) -> None:
    fed = load(shared_data / "leaf_femnist_sample")
    assert fed.clients == ("f1695_12", "f1621_46", "f2073_06", "f1984_28", "f1712_10", "f1697_45")
    assert fed.train.counts.tolist() == [17, 11, 18, 5, 18, 7]
    assert np.median(fed.train.features) == 255  # mostly white paper


def test_a_test_part_of_another_kind_is_refused(tmp_path: Path) -> None:
    written(tmp_path / "train" / "a.json", leaf(WRITERS))
    written(tmp_path / "test" / "a.json", leaf({"u": ([VERSE], ["a"])}))
    with pytest.raises(
        ScafflixError, match=f"{tmp_path}: Client 'u' has 80 features held out, but"
    ):
        load(tmp_path)
