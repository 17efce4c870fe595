"""Calls of the Python interface with wrong arguments, one after another.

    python tests/trust/interface.py FIRST COUNT [SUBJECT ...]

tries the calls FIRST, FIRST + 1, ... of each subject and prints what came of them as JSON. A call
depends on its subject and number alone: it is a right call of which one argument, or two, were
replaced by something of another type, shape or size, or by the partner of another place. It must
return what the right call returns of an argument that means the same (and finite numbers, whatever
it was), or raise one ScafflixError of one line; anything else is a failure.
"""

from __future__ import annotations

import json
import math
import os
import random
import sys
import tempfile
import traceback
import warnings
from collections import Counter
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
from fuzzer import check_sentence
from public import Call, calls, parts
from scipy import sparse

import scafflix as sx
from scafflix.core.errors import ScafflixError
from scafflix.core.store import Store

Random = random.Random


class Nasty:
    """An object that answers every question with an error."""

    def __float__(self) -> float:
        raise ValueError("no number")

    def __array__(self, *_: Any, **__: Any) -> Any:
        raise RuntimeError("no array")


SCALARS: tuple[Any, ...] = (
    None, True, False, 0, 1, 2, 3, -1, 10**9, 10**30, 10**5000, 0.0, 0.5, 1.5, -0.5, 3.0, 1e-200,
    1e-16, 1e300, math.nan, math.inf, -math.inf, 1j, "", "3", "0.5", "ones", "warm", "full", "x",
    "a\nb", "\0", "é" * 3000, b"3", Fraction(1, 2), np.float64(0.5), np.float32(0.5), np.int8(2),
    np.uint64(2**63), np.bool_(True), np.complex128(1), np.str_("x"), np.array(0.5), np.array(2),
    np.datetime64("2020-01-01"), Path("nowhere"), Nasty(), object(), print, lambda: None,
)  # fmt: skip
CONTAINERS: tuple[Any, ...] = (
    [], (), {}, set(), [1], [1, 2], [1.0, math.nan], [[1, 2], [3]], [None], ["a", "b"], {"a": 1},
    {"a": (1, 2)}, {None: ([[1.0]], [0])}, range(3), [0, 0], [2, 1, 0], [0.5, 0.5, 1.0],
    [-1, 0, 1], [True, False, True], [10**400, 1, 2],
)  # fmt: skip


def arrays(r: Random) -> Any:
    """Arrays of unwanted shapes, types and values."""
    shape = r.choice(((), (0,), (2,), (3,), (4,), (3, 1), (1, 3), (2, 3), (3, 2), (3, 2, 1)))
    kind = r.choice((np.float64, np.float32, np.int64, bool, np.complex128, object, "U3", "M8[s]"))
    made = np.ones(shape, kind)
    if made.dtype.kind == "f" and made.size and r.random() < 0.3:
        made.flat[0] = r.choice((math.nan, math.inf, -1.0, 1e30))
    if made.ndim == 2 and made.dtype.kind == "f" and r.random() < 0.2:
        return r.choice((sparse.csr_array, sparse.coo_array, sparse.csr_matrix))(made)
    if made.dtype.kind in "bif" and r.random() < 0.2:
        return jnp.asarray(made)
    return made


def disguised(r: Random, value: Any) -> Any:
    """The same value in another type, which may be refused but not misread."""
    if isinstance(value, bool | str) or value is None:
        return value
    if isinstance(value, int):
        return r.choice((np.int64(value), np.int32(value), np.array(value)))
    if isinstance(value, float):
        return r.choice((np.float64(value), np.array(value), Fraction(value)))
    if isinstance(value, np.ndarray):
        return r.choice((value.tolist(), jnp.asarray(value), value.copy()))
    if isinstance(value, list):
        return r.choice((tuple(value), list(value)))
    return value


def spoil(r: Random, right: Any) -> Any:
    """Something else in the place of a right value."""
    way = r.random()
    if way < 0.45:
        return r.choice(SCALARS)
    if way < 0.65:
        return r.choice(CONTAINERS)
    if way < 0.8:
        return arrays(r)
    if way < 0.95:
        return r.choice(list(parts().values()))  # a partner of another place
    return [right]


class MisreadError(AssertionError):
    """A value in another type made another result."""


def described(value: Any) -> Any:
    """What two results must have in common."""
    if isinstance(value, sx.Record):
        return [np.asarray(value.models[name]).tolist() for name in sorted(value.models)]
    if isinstance(value, sx.data.Federation):
        return np.asarray(value.train.features).tolist(), value.clients
    if isinstance(value, sx.methods.Method):
        return np.asarray(value.gamma).tolist(), float(value.p)
    if isinstance(value, sx.Personalization):
        points = value.x_star
        if isinstance(points, Store | None):
            return value.alpha.tolist(), None
        return value.alpha.tolist(), np.asarray(points).tolist()
    if isinstance(value, list):
        return [described(one) for one in value]
    return None


@cache
def right_result(subject: str) -> Any:
    """What the call returns with its own arguments."""
    call = calls()[subject]
    result = call.function(**call.arguments)
    call.check(result)
    return described(result)


def attempt(subject: str, call: Call, number: int) -> str:
    """Done, refused, or what went wrong with one call."""
    r = random.Random(f"{subject} {number}")
    arguments = dict(call.arguments)
    chosen = r.sample(sorted(arguments), min(len(arguments), r.choice((1, 1, 1, 2))))
    disguise = r.random() < 0.15
    for name in chosen:
        change = disguised if disguise else spoil
        other = change(r, arguments[name])
        # what a user's own function raises is the user's
        if not (callable(other) and (callable(arguments[name]) or name == "progress")):
            arguments[name] = other
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            warnings.simplefilter("ignore", sx.ScafflixWarning)
            result = call.function(**arguments)
            call.check(result)
            if disguise and described(result) != right_result(subject):
                raise MisreadError("another result than that of the right argument")
        return "done"
    except ScafflixError as error:
        try:
            check_sentence(str(error), None)
            return "refused"
        except AssertionError as fault:
            return f"sentence: {fault}"
    except Exception as error:  # a finding
        frames = traceback.extract_tb(error.__traceback__)
        places = [f"{Path(f.filename).name}:{f.lineno}" for f in frames[-4:]]
        given = {name: repr(arguments[name])[:60] for name in chosen if _shows(arguments[name])}
        return f"{type(error).__name__}: {str(error)[:200]} ({' '.join(places)}) {given}"


def _shows(value: Any) -> bool:
    try:
        repr(value)
    except ValueError:
        return False
    return True


def fuzz(first: int, count: int, chosen: list[str]) -> dict[str, dict[str, Any]]:
    """What came of so many calls of each subject; of each failure, the number of a call."""
    every = calls()
    results: dict[str, dict[str, Any]] = {}
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        os.environ["SCAFFLIX_CACHE"] = folder
        parts()["record"].save("kept")
        for subject in chosen or every:
            if subject != "fetch":
                right_result(subject)
            found: Counter[str] = Counter()
            failures: dict[str, tuple[int, str]] = {}
            for number in range(first, first + count):
                outcome = attempt(subject, every[subject], number)
                good = outcome in ("done", "refused")
                found[outcome if good else "failed"] += 1
                if not good:
                    failures.setdefault(outcome[:60], (number, outcome))
            results[subject] = {**found, "failures": failures}
            print(subject, results[subject], file=sys.stderr, flush=True)
    return results


if __name__ == "__main__":
    print(json.dumps(fuzz(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:])))
