"""Inputs made to do harm: pickles in every container, ids that are paths, archives that lie."""

from __future__ import annotations

import ast
import bz2
import gzip
import io
import json
import lzma
import pickle
import sqlite3
import warnings
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgpack
import numpy as np
import pyarrow as pa
import pytest
from flwr.app import Array, ArrayRecord
from formats import (
    LEAF_TEXTS,
    RELEASE,
    TABLE,
    archive_arrays,
    client_bytes,
    database_bytes,
    json_bytes,
    npy_bytes,
    npz_bytes,
    parquet_bytes,
    writer_arrays,
)
from wire import samples

import scafflix
from scafflix.core.errors import ScafflixError
from scafflix.data import from_arrays, from_clients, load
from scafflix.federate.messages import checked_name
from scafflix.federate.wire import pack, unpack
from scafflix.runs.config import RunConfig, read


class Mine:
    """Unpickling this leaves a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return (open, (str(self.path), "w"))


@pytest.fixture
def trap(tmp_path: Path) -> Path:
    return tmp_path / "sprung"


def test_the_trap_works(trap: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)  # the file that it leaves open
        pickle.loads(pickle.dumps(Mine(trap)))
    assert trap.exists()


def objects(mine: Mine) -> Any:
    array = np.empty(4, object)
    array[:] = mine
    return array


def in_npz(mine: Mine) -> bytes:
    arrays = archive_arrays() | {"y": objects(mine)}
    return npz_bytes({f"{name}.npy": npy_bytes(array) for name, array in arrays.items()})


def as_npz_member(mine: Mine) -> bytes:
    members = {f"{name}.npy": npy_bytes(array) for name, array in archive_arrays().items()}
    return npz_bytes({**members, "y.npy": pickle.dumps(mine)})


def in_writers(mine: Mine) -> bytes:
    arrays = writer_arrays() | {"train_user": objects(mine)}
    return npz_bytes({f"{name}.npy": npy_bytes(array) for name, array in arrays.items()})


def in_parquet(mine: Mine) -> bytes:
    return parquet_bytes(TABLE | {"age": pa.array([pickle.dumps(mine)] * 4)})


def in_release(mine: Mine) -> bytes:
    array = msgpack.packb([[1], "object", pickle.dumps(mine)])
    packed = msgpack.packb({"pixels": msgpack.ExtType(1, array)})
    return database_bytes([(b"a", zlib.compress(packed), 1)])


def raw(mine: Mine) -> bytes:
    return pickle.dumps(mine)


CONTAINERS: list[tuple[str, Callable[[Mine], bytes]]] = [
    ("a.npz", in_npz),
    ("a.npz", as_npz_member),
    ("a.npz", in_writers),
    ("a.npz", raw),
    ("a.parquet", in_parquet),
    ("a.parquet", raw),
    ("a.csv", raw),
    ("a.txt", raw),
    ("a.txt.gz", lambda mine: gzip.compress(raw(mine))),
    ("a.txt.bz2", lambda mine: bz2.compress(raw(mine))),
    ("a.txt.xz", lambda mine: lzma.compress(raw(mine))),
    ("a.json", raw),
    ("a.jsonl", raw),
    ("a.sqlite", in_release),
    ("a.sqlite", raw),
    ("a.pkl", raw),
]


@pytest.mark.parametrize(("name", "content"), CONTAINERS)
def test_a_pickle_is_never_opened(
    tmp_path: Path, trap: Path, name: str, content: Callable[[Mine], bytes]
) -> None:
    path = tmp_path / name
    path.write_bytes(content(Mine(trap)))
    with pytest.raises(ScafflixError, match=name):
        load(path, clients=1)
    assert not trap.exists()


def test_a_pickle_in_a_configuration_or_a_message_is_never_opened(
    tmp_path: Path, trap: Path
) -> None:
    path = tmp_path / "run.toml"
    path.write_bytes(raw(Mine(trap)))
    with pytest.raises(ScafflixError, match="not valid TOML"):
        read(RunConfig, path, {}, [])
    upload = next(message for message in samples() if type(message).__name__ == "Upload")
    for data in (npy_bytes(objects(Mine(trap))), raw(Mine(trap))):
        record = pack(upload)
        record["point"] = ArrayRecord({"0": Array("object", (4,), "numpy.ndarray", data)})
        with pytest.raises(ScafflixError, match="cannot be read"):
            unpack(record)
    assert not trap.exists()


FORBIDDEN_CALLS = {"eval", "exec", "compile", "__import__"}
FORBIDDEN_MODULES = {"pickle", "cloudpickle", "dill", "joblib", "marshal", "shelve", "yaml"}


def test_nothing_in_the_package_evaluates_text_or_unpickles() -> None:
    package = Path(scafflix.__file__).parent
    found = []
    for path in sorted(package.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            place = f"{path.relative_to(package)}:{getattr(node, 'lineno', 0)}"
            match node:
                case ast.Call(func=ast.Name(id=name)) if name in FORBIDDEN_CALLS:
                    found.append(f"{place} calls {name}")
                case ast.Call(func=ast.Attribute(value=ast.Name(id="np"), attr="load")):
                    options = {word.arg: ast.unparse(word.value) for word in node.keywords}
                    if options.get("allow_pickle") != "False":
                        found.append(f"{place} loads without allow_pickle=False")
                case ast.keyword(arg="shell" | "allow_pickle", value=ast.Constant(value=True)):
                    found.append(f"{place} says {node.arg}=True")
                case ast.Import(names=names):
                    hits = {alias.name.split(".")[0] for alias in names} & FORBIDDEN_MODULES
                    found += [f"{place} imports {hit}" for hit in hits]
                case ast.ImportFrom(module=str(module)) if (
                    module.split(".")[0] in FORBIDDEN_MODULES
                ):
                    found.append(f"{place} imports {module}")
    assert found == []


BAD_IDS = {
    "a way up": "../x",
    "a way up on Windows": "..\\x",
    "a path from the root": "/etc/passwd",
    "dots": "..",
    "NUL": "a\0b",
    "a newline": "a\nb",
    "an escape sequence": "\x1b[31mred",
    "half a character": "\ud800",
    "too long": "x" * 201,
    "blank": "   ",
    "a device": "CON",
    "a device with a suffix": "nul.txt",
    "right to left": "a\u202eb",
}


def in_leaf(client: str) -> tuple[str, bytes]:
    data = {client: LEAF_TEXTS["user_data"]["HAMLET"]}  # type: ignore[index]
    return "a.json", json_bytes({"users": [client], "num_samples": [2], "user_data": data})


def in_database(client: str) -> tuple[str, bytes]:
    row = (client.encode("utf-8", "surrogatepass"), zlib.compress(client_bytes(RELEASE[0][1])), 2)
    return "a.sqlite", database_bytes([row])


def in_archive(client: str) -> tuple[str, bytes]:
    arrays = archive_arrays() | {"client": np.array(["a", "a", client + "!", "b"])}
    arrays["client"][2] = client
    return "a.npz", npz_bytes({f"{name}.npy": npy_bytes(a) for name, a in arrays.items()})


# a text in NumPy ends at its last character that is not NUL, and UTF-8 has no half characters
@pytest.mark.parametrize("name", BAD_IDS)
def test_an_id_that_is_no_plain_name_is_refused_wherever_it_comes_from(
    tmp_path: Path, name: str
) -> None:
    client = BAD_IDS[name]
    with pytest.raises(ScafflixError):
        from_clients({client: ([[1.0]], [0])})
    with pytest.raises(ScafflixError):
        from_arrays([[1.0], [2.0]], [0, 1], np.array([client, "b"]))
    with pytest.raises(ScafflixError):
        checked_name(client)
    for make in (in_leaf, in_archive):
        file, content = make(client)
        (tmp_path / file).write_bytes(content)
        with pytest.raises(ScafflixError, match=file):
            load(tmp_path / file)
    if name != "half a character":  # which a release spells out, as it does all odd bytes
        file, content = in_database(client)
        (tmp_path / file).write_bytes(content)
        with pytest.raises(ScafflixError, match=file):
            load(tmp_path / file)


def test_a_role_that_is_a_path_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text(json.dumps({"play": "../..", "role": "/etc", "lines": ["x"]}))
    with pytest.raises(ScafflixError, match=r"a\.jsonl.*slash"):
        load(path)


@pytest.mark.parametrize("member", ["../x.npy", "/tmp/x.npy", "..\\x.npy", "C:\\x.npy"])
def test_an_archive_is_never_unpacked(tmp_path: Path, member: str) -> None:
    inside = tmp_path / "deep" / "down"
    inside.mkdir(parents=True)
    arrays = {f"{name}.npy": npy_bytes(array) for name, array in archive_arrays().items()}
    (inside / "a.npz").write_bytes(npz_bytes({**arrays, member: npy_bytes(np.ones(3))}))
    assert len(load(inside / "a.npz").clients) == 3
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == ["a.npz"]


def test_an_encrypted_archive_is_refused(tmp_path: Path) -> None:
    members = {f"{name}.npy": npy_bytes(array) for name, array in archive_arrays().items()}
    content = bytearray(npz_bytes(members, zipfile.ZIP_STORED))
    for signature, flags in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        place = content.find(signature)
        while place >= 0:
            content[place + flags] |= 1
            place = content.find(signature, place + 1)
    path = tmp_path / "a.npz"
    path.write_bytes(content)
    with pytest.raises(ScafflixError, match=r"a\.npz: not a readable .*encrypted"):
        load(path)


def test_a_database_runs_nothing_of_its_own(tmp_path: Path) -> None:
    path = tmp_path / "a.sqlite"
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE other (a)")
    # a view may hold any query, here one without end
    connection.execute(
        "CREATE VIEW federated_data AS WITH RECURSIVE r(i) AS (SELECT 1 UNION ALL SELECT i + 1 "
        "FROM r) SELECT i AS client_id, i AS data, i AS num_examples FROM r"
    )
    connection.commit()
    connection.close()
    with pytest.raises(ScafflixError, match="there is no table federated_data"):
        load(path)


def test_a_sentence_never_commands_a_terminal(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(b"a,y\n\x1b[2J\x1b]0;title\x07,1,2\n")
    with pytest.raises(ScafflixError, match=r"a\.csv") as caught:
        load(path, clients=1)
    assert str(caught.value).isprintable()


def test_text_after_the_end_of_a_stream_is_not_lost_in_silence(tmp_path: Path) -> None:
    stream = io.BytesIO(gzip.compress(b"1 1:1\n") + b"more")
    path = tmp_path / "a.txt.gz"
    path.write_bytes(stream.getvalue())
    with pytest.raises(ScafflixError, match=r"a\.txt\.gz: cannot be read"):
        load(path, clients=1)
