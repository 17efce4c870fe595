"""Ways to damage what was valid: bytes, numbers in texts, trees of values."""

from __future__ import annotations

import random
import re
import struct
from collections.abc import Callable
from typing import Any

Random = random.Random

NUMBERS = (
    "0", "-1", "1", "007", "1e309", "-1e309", "1e-400", "nan", "NaN", "inf", "-Infinity",
    "9" * 400, "9" * 5000, "1" + "0" * 9, "2147483648", "4294967296", "18446744073709551616",
    "-9223372036854775809", "0x10", "1_000", "1.5", "١٢", "", " ", "1e5", "--1", "1.", ".5", "+",
)  # fmt: skip
"""What a number in a text is replaced by."""

VALUES: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 2, 10**9, 2**31, 2**63 - 1, 10**30, 10**400, 0.5, -0.0, 1e308,
    1e309, float("nan"), "", "a", "0.5", "\0", "\ud800", "é", "../../etc/passwd", "/etc/passwd",
    "NUL", "x" * 3000, "\n", [], [[]], [1, 2], ["a"], {}, {"a": 1}, {"x": [], "y": []}, [None],
    [True],
)  # fmt: skip
"""What a value of a tree is replaced by."""

EXTREMES = tuple(
    struct.pack(f"{order}{kind}", number)
    for order in "<>"
    for kind, numbers in (
        ("I", (0, 1, 2**31 - 1, 2**31, 2**32 - 1)),
        ("Q", (0, 2**32, 2**40, 2**63 - 1, 2**64 - 1)),
        ("H", (0, 0xFFFF)),
    )
    for number in numbers
)


def flip(r: Random, content: bytes) -> bytes:
    place = r.randrange(len(content))
    return content[:place] + bytes([content[place] ^ 1 << r.randrange(8)]) + content[place + 1 :]


def overwrite(r: Random, content: bytes) -> bytes:
    place, other = r.randrange(len(content)), r.choice(EXTREMES)
    return content[:place] + other + content[place + len(other) :]


def truncate(r: Random, content: bytes) -> bytes:
    return content[: r.randrange(len(content))]


def insert(r: Random, content: bytes) -> bytes:
    place = r.randrange(len(content) + 1)
    what = r.choice((b"\0", b"\n", b"\xff\xfe", b'"', b"[" * 9, b",", b":", r.randbytes(5)))
    return content[:place] + what * r.choice((1, 1, 1, 100)) + content[place:]


def splice(r: Random, content: bytes) -> bytes:
    a, b = sorted(r.randrange(len(content) + 1) for _ in range(2))
    place = r.randrange(len(content) + 1)
    return content[:place] + content[a:b][:10_000] + content[place:]


def cut(r: Random, content: bytes) -> bytes:
    a, b = sorted(r.randrange(len(content) + 1) for _ in range(2))
    return content[:a] + content[min(b, a + r.choice((1, 10, 1000))) :]


def renumber(r: Random, content: bytes) -> bytes:
    found = list(re.finditer(rb"[0-9.]+", content))
    if not found:
        return flip(r, content)
    which = r.choice(found)
    return content[: which.start()] + r.choice(NUMBERS).encode() + content[which.end() :]


def recode(r: Random, content: bytes) -> bytes:
    return content.decode("latin-1").encode(r.choice(("utf-16", "utf-8-sig", "utf-32-be")))


Way = Callable[[Random, bytes], bytes]
BYTES: tuple[Way, ...] = (flip, overwrite, truncate, insert, splice, cut)
TEXT = (*BYTES, renumber, renumber, renumber, renumber, recode)


def damaged(r: Random, content: bytes, ways: tuple[Way, ...] = BYTES) -> bytes:
    """The bytes after one to four changes; now and then nothing or anything instead."""
    if r.random() < 0.03:
        return r.choice((b"", r.randbytes(r.randrange(1, 200))))
    for _ in range(r.choice((1, 1, 2, 4))):
        content = r.choice(ways)(r, content) if content else content
    return content


def damaged_tree(r: Random, value: Any) -> Any:
    """A tree of dicts, lists and scalars with one place changed."""
    inside = isinstance(value, dict | list) and len(value) > 0 and r.random() < 0.85
    if not inside:
        return deep(r) if r.random() < 0.02 else r.choice(VALUES)
    if isinstance(value, dict):
        key = r.choice(list(value))
        match r.randrange(8):
            case 0:
                return {k: v for k, v in value.items() if k != key}
            case 1:
                return {**value, r.choice(("", "a", "__class__", "x", "\0")): value[key]}
            case _:
                return {**value, key: damaged_tree(r, value[key])}
    place = r.randrange(len(value))
    match r.randrange(8):
        case 0:
            return value[:place] + value[place + 1 :]
        case 1:
            return [*value, value[place]]
        case _:
            return [*value[:place], damaged_tree(r, value[place]), *value[place + 1 :]]


def deep(r: Random) -> Any:
    """Lists in lists, deeper than any parser should follow."""
    value: Any = []
    for _ in range(r.choice((40, 900))):
        value = [value]
    return value
