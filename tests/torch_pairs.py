"""The same problems and runs in JAX and in PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

import miniature
import scafflix as sx
from scafflix.core.store import Store
from scafflix.data.federation import Examples, Federation
from scafflix.methods import Method
from torch_networks import in_torch, twin

ALPHA, GAMMA = np.array([0.3, 1.0, 0.6]), np.array([0.2, 0.1, 0.3])


def pictures() -> Federation:
    """Three clients with a few pictures each."""
    return _federation(lambda random, n: random.integers(0, 256, (n, 28, 28), np.uint8), (5,))


def lines() -> Federation:
    """Three clients with a few lines each, some of which end early."""

    def codes(random: np.random.Generator, n: int) -> Any:
        return random.integers(0, 6, (n, 7), np.uint8)

    return _federation(codes, (6, 7))


def _federation(
    inputs: Callable[[np.random.Generator, int], Any], labels: tuple[int, ...]
) -> Federation:
    random = np.random.default_rng(4)
    classes, *length = labels
    parts = []
    for counts in ((5, 3, 4), (2, 0, 3), (1, 2, 1)):
        n = sum(counts)
        made = random.integers(0, classes, (n, *length)).astype(np.int32)
        if length:
            made[::2, -2:] = -1
        offsets = np.concatenate([[0], np.cumsum(counts)])
        parts.append(Examples(inputs(random, n), made, offsets))
    return Federation("few", ("a", "b", "c"), *parts)


@cache
def pair(kind: str) -> tuple[sx.Problem, sx.Problem]:
    """The same problem in JAX and in PyTorch."""
    if kind == "dense":
        return miniature.problem(), _torch(miniature.problem())
    if kind == "cnn":
        theirs = sx.Problem(pictures(), sx.models.cnn(classes=5), 0.01)
    else:
        theirs = sx.Problem(lines(), sx.models.lstm(6, embedding=3, units=4), 0.01)
    return theirs, _torch(theirs)


def _torch(theirs: sx.Problem) -> sx.Problem:
    return sx.Problem(theirs.federation, twin(theirs.in_jax), theirs.l2)


def stars(theirs: sx.Problem, mine: sx.Problem) -> tuple[Store, Store]:
    """The same points for the clients of both."""
    found, other = miniature.points(theirs, scale=0.05), Store(mine.template, mine.n)
    everyone = np.arange(mine.n)
    other.write(everyone, in_torch(found.read(everyone)))
    return found, other


def records(kind: str, make: Callable[..., Method], **options: Any) -> tuple[sx.Record, sx.Record]:
    """20 rounds of a method from the same start with all examples, in JAX and in PyTorch."""
    theirs, mine = pair(kind)
    small = kind == "dense"
    alpha, gamma = (miniature.ALPHA, miniature.GAMMA) if small else (ALPHA, GAMMA)
    start = theirs.start(0)
    made = []
    for problem, x_star, x0, own in zip(
        (theirs, mine), stars(theirs, mine), (start, in_torch(start)), ("*/bias", "*.bias"),
        strict=True,
    ):  # fmt: skip
        method = miniature.method_of(make, alpha, gamma, own=own)
        person = sx.Personalization(alpha, x_star, start=sx.Start(x0))
        cohort = 4 if small else 2
        asked = {"rounds": 20, "cohort": cohort, "every": 10, **options}
        made.append(sx.run(problem, person, method, **asked))
    return made[0], made[1]


def assert_equal(theirs: sx.Record, mine: sx.Record, close: float) -> None:
    """In every model, every measured number and every count of bits."""
    for name, array in theirs.models.items():
        kind, _, rest = name.partition("/")
        found = mine.models[f"{kind}/{rest.replace('/', '.')}"]
        np.testing.assert_allclose(found, array, rtol=close, atol=close, err_msg=name)
    for table in ("metrics", "clients"):
        for name, values in getattr(theirs, table).items():
            found = getattr(mine, table)[name]
            if values.dtype.kind == "f":
                np.testing.assert_allclose(found, values, rtol=20 * close, atol=20 * close)
            else:
                np.testing.assert_array_equal(found, values)
