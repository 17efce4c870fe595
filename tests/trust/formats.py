"""Every format that a user can hand in: a small valid file, and damaged ones made from it.

Half of the damage is done inside, before a file is packed, so that it passes checksums and reaches
what lies behind them; half is done to the bytes of the file.
"""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import sqlite3
import zipfile
import zlib
from collections.abc import Callable
from typing import Any, NamedTuple

import msgpack
import numpy as np
import pyarrow as pa
import tomli_w
from damage import TEXT, VALUES, Random, damaged, damaged_tree
from pyarrow import parquet

LOAD: dict[str, Any] = {"clients": 2}


class Format(NamedTuple):
    """A kind of file: how it is called, what makes one from random numbers, how it is loaded."""

    file: str
    valid: Callable[[], bytes]
    broken: Callable[[Random], bytes]
    options: tuple[dict[str, Any], ...] = ({},)


SVMLIGHT = b"+1 1:0.5 3:2 # a comment\n-1 2:1 qid:3\n+1 1:1 2:0.25 3:-4\n-1 3:1e-3\n"
SVMLIGHT = SVMLIGHT.replace(b" qid:3", b"")
CSV = b'age,colour,site,label\n31,red,A,0\n45.5,"blue, dark",B,1\n28,red,A,1\n50,green,C,0\n'
ROLES: list[Any] = [
    {"play": "Hamlet", "role": "GHOST", "lines": ["Mark me.", "I am thy father's spirit,"]},
    {"play": "Macbeth", "role": "Porter", "lines": ["Knock, knock, knock! " * 8]},
]
IMAGE = [round(k / 783, 2) for k in range(784)]
LEAF_IMAGES = {
    "users": ["f0001_00", "f0002_01"],
    "num_samples": [2, 1],
    "user_data": {
        "f0001_00": {"x": [IMAGE, IMAGE[::-1]], "y": [0, 61]},
        "f0002_01": {"x": [IMAGE], "y": [7]},
    },
}
LEAF_TEXTS = {
    "users": ["HAMLET"],
    "num_samples": [2],
    "user_data": {"HAMLET": {"x": ["to be or not to be, " * 4, "a" * 80], "y": ["t", "?"]}},
}
TOML: dict[str, Any] = {
    "data": "digits",
    "clients": 20,
    "split": "dirichlet:0.3",
    "alpha": 0.5,
    "methods": ["gd", "scafflix"],
    "alphas": [1.0, 0.1],
    "stepsizes": [0.1, 1.0],
    "rounds": 10,
    "p": "auto",
    "stepsize": 0.1,
    "intercept": True,
    "batch": "full",
    "epsilon": 1e-3,
    "label": "y",
}


def text(valid: bytes) -> Callable[[Random], bytes]:
    return lambda r: damaged(r, valid, TEXT)


def packed(
    pack: Callable[[bytes], bytes], inner: Callable[[Random], bytes], valid: bytes
) -> Callable[[Random], bytes]:
    """Compressed text, damaged before or after compression."""
    return lambda r: pack(inner(r)) if r.random() < 0.5 else damaged(r, pack(valid))


def tree(valid: Any, write: Callable[[Any], bytes]) -> Callable[[Random], bytes]:
    """A tree of values, or the text that it is written as."""

    def broken(r: Random) -> bytes:
        if r.random() < 0.6:
            try:
                return write(damaged_tree(r, valid))
            except (TypeError, ValueError, OverflowError, RecursionError, AttributeError):
                pass  # what cannot be written
        return damaged(r, write(valid), TEXT)

    return broken


def json_bytes(value: Any) -> bytes:
    return json.dumps(value).encode()


def lines_bytes(value: Any) -> bytes:
    return b"".join(json_bytes(line) + b"\n" for line in value)


def toml_bytes(value: Any) -> bytes:
    return tomli_w.dumps(value).encode("utf-8", "surrogatepass")


def archive_arrays() -> dict[str, Any]:
    return {
        "x": np.arange(12.0).reshape(4, 3) / 7,
        "y": np.array([0, 1, 1, 0]),
        "client": np.array(["a", "b", "a", "c"]),
    }


def writer_arrays() -> dict[str, Any]:
    arrays: dict[str, Any] = {}
    for part, rows in (("train", 4), ("test", 2)):
        arrays[f"{part}_x"] = np.arange(rows * 784).reshape(rows, 28, 28).astype(np.uint8)
        arrays[f"{part}_y"] = np.arange(rows) * 9
        arrays[f"{part}_user"] = np.array(["f1", "f2", "f1", "f3"])[:rows]
    return arrays


ODD_ARRAYS: tuple[Callable[[Any], Any], ...] = (
    lambda a: a.astype(object),
    lambda a: a.astype(complex) if a.dtype.kind != "U" else a.astype("S3"),
    lambda a: a[..., None],
    lambda a: a[:-1],
    lambda a: a[:0],
    lambda a: a.ravel()[0],
    lambda a: a.astype(str),
    lambda a: a.astype("M8[s]") if a.dtype.kind != "U" else a,
    lambda a: a.astype(np.float16) if a.dtype.kind != "U" else a,
    lambda a: a.astype(np.longdouble) * 10 if a.dtype.kind != "U" else a,
    lambda a: a.astype(">f8") if a.dtype.kind != "U" else a,
    lambda a: a.astype(np.uint64) if a.dtype.kind != "U" else a,
    lambda a: np.asfortranarray(a),
    lambda a: np.full(a.shape, np.nan),
    lambda a: np.full(a.shape, -np.inf),
    lambda a: np.full(a.shape, 1e308),
    lambda a: np.full(a.shape, -1),
    lambda a: np.full(a.shape, "../x"),
    lambda a: np.full(a.shape, "x" * 5000),
    lambda a: np.full(a.shape, b"\xff\xfe"),
    lambda a: np.zeros(a.shape, [("a", "f8"), ("b", "O")]),
    lambda a: np.zeros(a.shape, "V7"),
    lambda a: a.astype(bool) if a.dtype.kind != "U" else a,
)


def npy_bytes(array: Any) -> bytes:
    stream = io.BytesIO()
    np.save(stream, array, allow_pickle=True)
    return stream.getvalue()


def npz_bytes(members: dict[str, bytes], method: int = zipfile.ZIP_DEFLATED) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", method) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return stream.getvalue()


def npz(make: Callable[[], dict[str, Any]]) -> Callable[[Random], bytes]:
    def broken(r: Random) -> bytes:
        arrays = make()
        members = {f"{name}.npy": npy_bytes(array) for name, array in arrays.items()}
        name = r.choice(list(arrays))
        match r.randrange(6):
            case 0 | 1:
                members[f"{name}.npy"] = npy_bytes(r.choice(ODD_ARRAYS)(arrays[name]))
            case 2:
                content = members[f"{name}.npy"]  # the header is a text
                members[f"{name}.npy"] = damaged(r, content[:128], TEXT) + content[128:]
            case 3:
                members[f"{name}.npy"] = damaged(r, members[f"{name}.npy"])
            case 4:
                content = members.pop(f"{name}.npy")
                members[r.choice(("../x.npy", "/x.npy", "x", "client.npy", name))] = content
            case _:
                return damaged(r, npz_bytes(members))
        methods = (zipfile.ZIP_STORED, *5 * (zipfile.ZIP_DEFLATED,), zipfile.ZIP_LZMA)
        content = npz_bytes(members, r.choice(methods))
        return damaged(r, content) if r.random() < 0.2 else content

    return broken


def npz_valid(make: Callable[[], dict[str, Any]]) -> Callable[[], bytes]:
    return lambda: npz_bytes({f"{name}.npy": npy_bytes(a) for name, a in make().items()})


TABLE: dict[str, Any] = {
    "age": [31.0, 45.5, 28.0, 50.0],
    "colour": ["red", "blue", "red", "green"],
    "site": ["A", "B", "A", "C"],
    "label": [0, 1, 1, 0],
}
ODD_COLUMNS: tuple[Any, ...] = (
    pa.array([1, 2, 3, 4], pa.decimal128(38, 30)),
    pa.array([10**30, 2, 3, 4], pa.decimal256(60, 2)),
    pa.array([1, None, 3, 4]),
    pa.array([None] * 4),
    pa.array([[1], [2], [], [4]]),
    pa.array([{"a": 1}] * 4),
    pa.array([b"\xff", b"a", b"b", b""]),
    pa.array(["", "a", "b", "c"]),
    pa.array(["a\0b", "../x", "é", "x" * 5000]),
    pa.array(["u", "v", "u", None]).dictionary_encode(),
    pa.array(["u", "v", "u", "w"]).dictionary_encode(),
    pa.array([1, 2, 3, 4], pa.timestamp("ns")),
    pa.array([1, 2, 3, 4], pa.duration("s")),
    pa.array([float("nan"), 1.0, 2.0, 3.0]),
    pa.array([float("inf"), 1.0, 2.0, 3.0], pa.float32()),
    pa.array([2**63, 1, 2, 3], pa.uint64()),
    pa.array([True, False, True, True]),
    pa.array(np.array([1, 2, 3, 4], np.float16)),
    pa.array(["u", "v", "u", "w"], pa.large_string()),
    pa.array(["u", "v", "u", "w"], pa.string_view()),
    pa.array([1.0, 2.0, 1.0, 2.0]).dictionary_encode(),
)


def parquet_bytes(columns: dict[str, Any], **options: Any) -> bytes:
    stream = io.BytesIO()
    parquet.write_table(pa.table(columns), stream, **options)
    return stream.getvalue()


def broken_parquet(r: Random) -> bytes:
    columns = dict(TABLE)
    if r.random() < 0.5:
        columns[r.choice(list(columns))] = r.choice(ODD_COLUMNS)
        if r.random() < 0.2:
            columns.pop(r.choice(list(columns)))
    codec = r.choice(("none", "snappy", "gzip", "zstd", "lz4", "brotli"))
    content = parquet_bytes(columns, compression=codec, use_dictionary=r.random() < 0.5)
    return damaged(r, content) if r.random() < 0.7 else content


def numbers(array: Any) -> dict[str, Any]:
    return {"ext": 1, "parts": [list(array.shape), array.dtype.name, array.tobytes()]}


def texts(*snippets: bytes) -> dict[str, Any]:
    return {"ext": 4, "parts": [[len(snippets)], list(snippets)]}


def client_bytes(arrays: Any) -> bytes:
    def written(value: Any) -> Any:
        if isinstance(value, dict) and set(value) == {"ext", "parts"}:
            return msgpack.ExtType(value["ext"], msgpack.packb(value["parts"]))
        if isinstance(value, dict):
            return {key: written(entry) for key, entry in value.items()}
        return value

    return msgpack.packb(written(arrays))


RELEASE: list[Any] = [
    [
        b"f0001_00",
        {
            "pixels": numbers(np.linspace(0, 1, 2 * 784, dtype=np.float32).reshape(2, 28, 28)),
            "label": numbers(np.array([3, 61], np.int32)),
        },
        2,
    ],
    [b"f0002_11", {"snippets": texts(b"To be, or not to be", b"x" * 100)}, 2],
]


def database_bytes(rows: list[tuple[Any, ...]], schema: str = "") -> bytes:
    connection = sqlite3.connect(":memory:")
    connection.execute(
        schema
        or "CREATE TABLE federated_data (client_id BLOB NOT NULL PRIMARY KEY, data BLOB NOT NULL, "
        "num_examples INTEGER NOT NULL)"
    )
    connection.executemany("INSERT INTO federated_data VALUES (?, ?, ?)", rows)
    connection.commit()
    content = connection.serialize()
    connection.close()
    return content


def broken_release(r: Random) -> bytes:
    which = r.randrange(len(RELEASE))
    name, arrays, count = RELEASE[which]
    valid = client_bytes(arrays)
    match r.randrange(6):
        case 0 | 1:
            try:
                data = zlib.compress(client_bytes(damaged_tree(r, arrays)))
            except (TypeError, ValueError, OverflowError, RecursionError):
                data = zlib.compress(damaged(r, valid))
            row: tuple[Any, ...] = (name, data, count)
        case 2:
            head = damaged(r, valid[:80])  # where names, types and shapes are
            row = (name, zlib.compress(head + valid[80:]), count)
        case 3:
            row = (name, damaged(r, zlib.compress(valid)), count)
        case 4:
            odd = [value for value in VALUES if not isinstance(value, list | dict)]
            cells: list[Any] = [name, zlib.compress(valid), count]
            cells[r.randrange(3)] = r.choice(odd)
            row = tuple(cells)
        case _:
            return damaged(r, database_bytes([(name, zlib.compress(valid), count)]))
    try:
        return database_bytes([row])
    except (sqlite3.Error, OverflowError, UnicodeEncodeError):
        return damaged(r, database_bytes([(name, zlib.compress(valid), count)]))


BY_SITE = {"split": "column:site"}
PREPARED = {"test": 0.25, "scale": "standard", "intercept": True}

FORMATS: dict[str, Format] = {
    "svmlight": Format(
        "rows.txt",
        lambda: SVMLIGHT,
        text(SVMLIGHT),
        (LOAD, {**LOAD, "features": 3}, {**LOAD, **PREPARED}, {"split": "column:2"}),
    ),
    **{
        f"svmlight.{suffix}": Format(
            f"rows.txt.{suffix}",
            lambda pack=pack: pack(SVMLIGHT),  # type: ignore[misc]
            packed(pack, text(SVMLIGHT), SVMLIGHT),
            (LOAD,),
        )
        for suffix, pack in (("gz", gzip.compress), ("bz2", bz2.compress), ("xz", lzma.compress))
    },
    "csv": Format(
        "rows.csv", lambda: CSV, text(CSV), (LOAD, BY_SITE, {**LOAD, **PREPARED, "scale": "maxabs"})
    ),
    "parquet": Format(
        "rows.parquet", lambda: parquet_bytes(TABLE), broken_parquet, (LOAD, BY_SITE)
    ),
    "npz": Format("rows.npz", npz_valid(archive_arrays), npz(archive_arrays), ({}, LOAD)),
    "writers": Format("writers.npz", npz_valid(writer_arrays), npz(writer_arrays)),
    "leaf images": Format(
        "images.json", lambda: json_bytes(LEAF_IMAGES), tree(LEAF_IMAGES, json_bytes)
    ),
    "leaf texts": Format(
        "texts.json", lambda: json_bytes(LEAF_TEXTS), tree(LEAF_TEXTS, json_bytes)
    ),
    "roles": Format("roles.jsonl", lambda: lines_bytes(ROLES), tree(ROLES, lines_bytes)),
    "roles.gz": Format(
        "roles.jsonl.gz",
        lambda: gzip.compress(lines_bytes(ROLES)),
        packed(gzip.compress, tree(ROLES, lines_bytes), lines_bytes(ROLES)),
    ),
    "release": Format(
        "release.sqlite",
        lambda: database_bytes(
            [(name, zlib.compress(client_bytes(a)), count) for name, a, count in RELEASE[:1]]
        ),
        broken_release,
    ),
}
