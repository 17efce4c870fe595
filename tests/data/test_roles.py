import gzip
import json
from pathlib import Path

import numpy as np
import pytest

from scafflix.core.errors import ScafflixError
from scafflix.data import load
from scafflix.data.text import decode

GHOST = {"play": "Hamlet", "role": "GHOST", "lines": ["Mark me.", "I am thy father's spirit,"]}
PORTER = {"play": "Macbeth", "role": "Porter", "lines": ["Knock, " * 30]}


def written(folder: Path, *lines: object) -> Path:
    path = folder / "roles.jsonl"
    path.write_text("".join(f"{x if isinstance(x, str) else json.dumps(x)}\n" for x in lines))
    return path


def test_a_role_of_a_play_is_a_client(tmp_path: Path) -> None:
    fed = load(written(tmp_path, GHOST, "", PORTER))
    assert (fed.name, fed.clients) == ("roles", ("Hamlet: GHOST", "Macbeth: Porter"))
    assert fed.train.counts.tolist() == [1, 3]
    assert fed.train.features.shape == fed.train.labels.shape == (4, 80)
    assert (fed.train.features.dtype, fed.train.labels.dtype) == (np.uint8, np.int8)


def test_the_lines_are_joined_by_newlines(tmp_path: Path) -> None:
    text = decode(load(written(tmp_path, GHOST)).train.features)
    assert text == "Mark me.\nI am thy father's spirit,"


def test_a_compressed_file_reads_alike(tmp_path: Path) -> None:
    plain = written(tmp_path, GHOST, PORTER)
    packed = tmp_path / "packed.jsonl.gz"
    packed.write_bytes(gzip.compress(plain.read_bytes()))
    fed = load(packed)
    assert fed.name == "packed"
    assert fed.train.labels.tolist() == load(plain).train.labels.tolist()


def test_a_role_without_a_word_is_left_out(tmp_path: Path) -> None:
    fed = load(written(tmp_path, GHOST, {**PORTER, "lines": []}))
    assert fed.left_out == {"Macbeth: Porter": "no training rows"}


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", r"line 2: not valid JSON \("),
        ("[1]", "line 2: not a JSON object"),
        ({**PORTER, "play": 3}, "line 2: 'play' is missing or not text"),
        ({"play": "x", "lines": []}, "line 2: 'role' is missing"),
        ({**PORTER, "lines": "one"}, "line 2, client 'Macbeth: Porter': 'lines' is missing or no"),
        ({**PORTER, "lines": [1]}, "'lines' is missing or not a list of texts"),
        (GHOST, "line 2: 'Hamlet: GHOST' occurs twice"),
        ("[" * 100_000, "line 2: not valid JSON"),
        ("\udc80", "line 2: not valid JSON"),
    ],
)
def test_a_faulty_line_is_named(tmp_path: Path, line: object, message: str) -> None:
    path = tmp_path / "roles.jsonl"
    spelt = line if isinstance(line, str) else json.dumps(line)
    path.write_bytes(f"{json.dumps(GHOST)}\n{spelt}\n".encode("utf-8", "surrogateescape"))
    with pytest.raises(ScafflixError, match=message) as caught:
        load(path)
    assert "roles.jsonl" in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("content", [gzip.compress(b"{}" * 1000, mtime=0)[:-12], b"no gzip"])
def test_a_broken_compressed_file_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "roles.jsonl.gz"
    path.write_bytes(content)
    with pytest.raises(ScafflixError, match=r"roles\.jsonl\.gz: cannot be read"):
        load(path)


def test_a_file_without_roles_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ScafflixError, match=r"roles\.jsonl: no roles"):
        load(written(tmp_path))


def test_an_endless_line_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("scafflix.data.decompression.LINE_LIMIT", 100)
    with pytest.raises(ScafflixError, match="a line has more than 100 bytes"):
        load(written(tmp_path, {**PORTER, "lines": ["x" * 100_000]}))


def test_the_real_roles_are_read_whole(shared_data: Path) -> None:
    fed = load(shared_data / "shakespeare" / "shakespeare_roles.jsonl.gz")
    assert len(fed.clients) == 1188
    characters = (fed.train.labels >= 0).sum() - len(fed.clients)  # without the ends
    assert 4_100_000 < characters < 4_250_000
