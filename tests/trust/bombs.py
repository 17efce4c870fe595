"""Small files that claim to be huge; each must be refused before its claim takes memory."""

from __future__ import annotations

import bz2
import gzip
import lzma
import struct
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import msgpack
import numpy as np
import pyarrow as pa
from formats import database_bytes, npy_bytes, npz_bytes, parquet_bytes

from scafflix.data import load
from scafflix.runs.config import RunConfig, read

MILLION = 10**6


class Bomb(NamedTuple):
    file: str  # or the options of made-up data
    content: Callable[[], bytes] | None
    options: dict[str, Any] = {"clients": 2}  # noqa: RUF012


def members(pack: Callable[[bytes], bytes], content: bytes) -> Callable[[], bytes]:
    """128 MiB as 32 compressed members of 4 MiB, one behind the other."""
    return lambda: pack((content * (2**22 // len(content) + 1))[: 2**22]) * 32


def npy_header(shape: str, kind: str) -> bytes:
    text = f"{{'descr': '{kind}', 'fortran_order': False, 'shape': {shape}, }}"
    padded = text.ljust(117) + "\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(padded)) + padded.encode()


def claiming(shape: str, kind: str = "<f8", size: int | None = None) -> Callable[[], bytes]:
    """An archive whose array x has such a header, its directory claiming as many bytes."""

    def content() -> bytes:
        x = npy_header(shape, kind) + bytes(64)
        packed = npz_bytes({"y.npy": npy_bytes(np.zeros(2)), "x.npy": x}, zipfile.ZIP_STORED)
        if size is None:
            return packed
        place = packed.rindex(b"PK\x01\x02") + 24
        return packed[:place] + struct.pack("<I", size) + packed[place + 4 :]

    return content


def many_rows() -> bytes:
    column = pa.array(np.zeros(MILLION, bool))
    return parquet_bytes({f"c{i}": column for i in range(299)} | {"label": column})


def one_text(letters: int) -> Callable[[], bytes]:
    def content() -> bytes:
        indices = pa.array(np.zeros(MILLION, np.int32))
        texts = pa.DictionaryArray.from_arrays(indices, pa.array(["x" * letters]))
        return parquet_bytes({"c": texts, "label": np.zeros(MILLION)})

    return content


def client(packed: bytes) -> Callable[[], bytes]:
    return lambda: database_bytes([(b"a", zlib.compress(packed), 1)])


def array(shape: list[int]) -> bytes:
    content = msgpack.packb([shape, "float32", b""])
    return msgpack.packb({"pixels": msgpack.ExtType(1, content)})


NOBODY: dict[str, Any] = {}
BOMBS: dict[str, Bomb] = {
    "a billion features": Bomb("a.txt", lambda: b"1 1:1\n-1 1000000000:1\n"),
    "more features than an int holds": Bomb("a.txt", lambda: b"1 1:1\n-1 99999999999999:1\n"),
    "zeros in xz": Bomb("a.txt.xz", members(lzma.compress, b"\0")),
    "newlines in bz2": Bomb("a.txt.bz2", members(bz2.compress, b"\n")),
    "rows in gz": Bomb("a.txt.gz", members(gzip.compress, b"1 1:1\n")),
    "nothing but newlines as roles": Bomb("a.jsonl.gz", members(gzip.compress, b"\n"), NOBODY),
    "a role without end": Bomb("a.jsonl.gz", members(gzip.compress, b"["), NOBODY),
    "a billion numbers in 64 bytes": Bomb("a.npz", claiming("(1000000000,)")),
    "more rows than there are atoms": Bomb("a.npz", claiming("(10**9, 10**9)")),
    "a huge shape": Bomb("a.npz", claiming("(1000000000, 1000000000)")),
    "a claim that the directory confirms": Bomb(
        "a.npz", claiming("(400000000,)", size=128 + 3_200_000_000)
    ),
    "bytes that become doubles": Bomb("a.npz", claiming("(2000000000,)", "|u1", 128 + 2 * 10**9)),
    "one huge text": Bomb("a.npz", claiming("(1,)", "<U500000000", 128 + 2 * 10**9)),
    "a negative shape": Bomb("a.npz", claiming("(-1, -8)")),
    "a deep header": Bomb("a.npz", claiming("(" * 50 + ")" * 50)),
    "three hundred million cells": Bomb("a.parquet", many_rows),
    "a long text a million times": Bomb("a.parquet", one_text(900_000)),
    "a text that fits a million times over": Bomb("a.parquet", one_text(900)),
    "a long text in a column": Bomb(
        "a.csv", lambda: b"c,y\n" + b"x" * 300_000 + b",1\n" + b"a,0\n" * 100_000
    ),
    "texts as features": Bomb(
        "a.csv",
        lambda: (
            (",".join(f"c{i}" for i in range(60)) + ",y\n").encode()
            + b"".join(b",".join([b"%02d_" % (r % 97)] * 60) + b",0\n" for r in range(50_000))
        ),
    ),
    "a hundred thousand columns": Bomb(
        "a.csv", lambda: (",".join(f"c{i}" for i in range(100_000)) + "\n" + "0," * 99_999).encode()
    ),
    "a million brackets": Bomb("a.json", lambda: b"[" * MILLION, NOBODY),
    "a million objects": Bomb("a.json", lambda: b'{"x":' * MILLION, NOBODY),
    "a number of a million digits": Bomb("a.json", lambda: b"9" * MILLION, NOBODY),
    "a billion examples": Bomb(
        "a.json",
        lambda: b'{"users":["a"],"num_samples":[1000000000],"user_data":{"a":{"x":[],"y":[]}}}',
        NOBODY,
    ),
    "zeros in zlib": Bomb("a.sqlite", client(bytes(2 * 10**8)), NOBODY),
    "a billion pixels": Bomb("a.sqlite", client(array([10**9, 28, 28])), NOBODY),
    "pixels without end": Bomb("a.sqlite", client(array([2**64 - 1, 0])), NOBODY),
    "lists in lists": Bomb("a.sqlite", client(b"\x91" * MILLION), NOBODY),
    "a map that claims four billion": Bomb("a.sqlite", client(b"\xdf\xff\xff\xff\xff"), NOBODY),
    "brackets in a configuration": Bomb("a.toml", lambda: b"data = " + b"[" * MILLION),
    "a billion made-up clients": Bomb("clients=1000000000,rows=1,features=1", None),
    "a billion made-up features": Bomb("features=1000000000,rows=1", None),
    "a billion made-up classes": Bomb("task=softmax,classes=1000000000", None),
    "made-up clients in their millions": Bomb("clients=200000000,rows=1", None),
}


def set_off(bomb: Bomb, folder: Path) -> None:
    """Read the bomb as a user would."""
    if bomb.content is None:
        load(f"synthetic:{bomb.file}")
        return
    path = folder / bomb.file
    path.write_bytes(bomb.content())
    if path.suffix == ".toml":
        read(RunConfig, path, {}, [])
    else:
        load(path, **bomb.options)
