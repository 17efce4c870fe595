"""Unbiased compressors: E C(x) = x, E ||C(x) - x||^2 <= omega ||x||^2, and exact bits."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest

from scafflix import ScafflixError
from scafflix.core.vector import Vector
from scafflix.methods.compressors import Dithering, Identity, Natural, RandK, compressor_of
from scafflix.methods.flat import numbers_of

D, KEYS = 10, 20_000
EVERY = {
    "identity": Identity(),
    "rand_k of a number": RandK(3),
    "rand_k of a share": RandK(0.25),
    "natural": Natural(),
    "dithering": Dithering(2),
    "coarse dithering": Dithering(1),
}
pytestmark = pytest.mark.usefixtures("float64")


@pytest.fixture(params=EVERY)
def compressor(request: pytest.FixtureRequest) -> Identity:
    return EVERY[request.param]


def message(dtype: Any = np.float64) -> Vector:
    """Of two arrays, ten numbers of unlike size and sign and one 0 among them."""
    x = np.random.default_rng(1).normal(size=D) * np.geomspace(0.01, 3, D)
    x[4] = 0
    return Vector({"a": x[:4].reshape(2, 2).astype(dtype), "b": x[4:].astype(dtype)})


def flat(tree: Any, axes: int = 0) -> Any:
    leaves = jax.tree.leaves(tree)
    return np.concatenate([np.reshape(leaf, (*leaf.shape[:axes], -1)) for leaf in leaves], axes)


def many(compressor: Identity) -> Any:
    """What arrives of one message by many keys, [keys, d]."""
    keys = jax.random.split(jax.random.key(3), KEYS)
    arrived = jax.jit(jax.vmap(compressor.compress, (0, None)))(keys, message())
    return flat(arrived, axes=1)


def test_it_is_unbiased_and_its_variance_is_within_omega(compressor: Identity) -> None:
    x, arrived = flat(message()), many(compressor)
    deviation = arrived.std(axis=0) / np.sqrt(KEYS)
    assert (np.abs(arrived.mean(axis=0) - x) <= 5 * deviation + 1e-12).all()
    spread = np.sum((arrived - x) ** 2, axis=1) / np.sum(x**2)
    slack = 5 * spread.std() / np.sqrt(KEYS)
    assert spread.mean() <= compressor.omega(D) + slack
    assert (arrived[:, 4] == 0).all()


@pytest.mark.parametrize(("k", "chosen"), [(3, 3), (0.25, 3), (1, 1), (10, 10), (0.3, 3)])
def test_the_variance_of_rand_k_is_omega(k: float, chosen: int) -> None:
    x, arrived = flat(message()), many(RandK(k))
    assert RandK(k).omega(D) == pytest.approx(D / chosen - 1)
    others = np.delete(arrived, 4, axis=1)  # without the number that is 0 anyway
    assert set((others != 0).sum(axis=1)) <= {chosen, chosen - 1}
    spread = np.sum((arrived - x) ** 2, axis=1) / np.sum(x**2)
    slack = 5 * spread.std() / np.sqrt(KEYS) + 1e-12
    assert abs(spread.mean() - RandK(k).omega(D)) <= slack


def test_the_variance_of_natural_compression_is_an_eighth_at_its_worst() -> None:
    keys = jax.random.split(jax.random.key(0), KEYS)
    x = np.array([4 / 3])  # where (2 - x)(x - 1)/x^2 is largest
    arrived = np.asarray(jax.vmap(Natural().compress, (0, None))(keys, jax.numpy.asarray(x)))
    assert set(arrived.ravel()) == {1.0, 2.0}
    assert np.mean((arrived / x - 1) ** 2) == pytest.approx(1 / 8, rel=0.02)


def test_natural_compression_leaves_powers_of_two_of_either_sign() -> None:
    for dtype in (np.float32, np.float64):
        info = np.finfo(dtype)
        exponents = np.arange(info.minexp, info.maxexp)
        x = np.ldexp(dtype(1), exponents) * np.where(exponents % 2, 1, -1).astype(dtype)
        for made in (x, jax.numpy.asarray(x)):
            found = np.asarray(Natural().compress(jax.random.key(1), made))
            np.testing.assert_array_equal(found, x)
            assert found.dtype == dtype


def test_what_arrives_of_dithering_are_multiples_of_the_norm_over_the_levels() -> None:
    arrived = many(Dithering(2))
    levels = arrived / (np.linalg.norm(flat(message())) / 2)
    np.testing.assert_allclose(levels, np.round(levels), atol=1e-12)
    assert np.abs(levels).max() <= 2 + 1e-12


@pytest.mark.parametrize(
    ("compressor", "narrow", "wide"),
    [
        (Identity(), 32 * D, 64 * D),
        (RandK(3), 3 * 32, 3 * 64),
        (RandK(0.25), 3 * 32, 3 * 64),
        (Natural(), 9 * D + 6, 12 * D),  # in whole bytes
        (Dithering(1), 32 + 2 * D + 4, 64 + 2 * D + 4),  # a sign, and 0 or 1
        (Dithering(7), 32 + 4 * D, 64 + 4 * D),  # a sign, and one of 0 to 7
        (Dithering(8), 32 + 5 * D + 6, 64 + 5 * D + 6),
    ],
)
def test_it_says_its_bits(compressor: Identity, narrow: int, wide: int) -> None:
    assert compressor.bits(message(np.float32)) == narrow
    assert compressor.bits(message(np.float64)) == wide
    assert numbers_of(message()) == D


def test_numpy_arrays_stay_numpy_arrays_with_the_same_numbers(compressor: Identity) -> None:
    key = jax.random.key(7)
    mine = compressor.compress(key, message())
    theirs = jax.jit(compressor.compress)(key, message())
    assert all(type(leaf) is np.ndarray for leaf in jax.tree.leaves(mine))
    np.testing.assert_allclose(flat(mine), flat(theirs), rtol=1e-14)
    narrow = compressor.compress(key, message(np.float32))
    assert {leaf.dtype for leaf in jax.tree.leaves(narrow)} == {np.dtype(np.float32)}


def test_a_message_of_zeros_stays_one(compressor: Identity) -> None:
    zeros = compressor.compress(jax.random.key(0), 0 * message())
    assert not flat(zeros).any()


def test_omega_without_a_size_is_that_of_any_message() -> None:
    assert (Identity().omega(), Natural().omega(), RandK(0.25).omega()) == (0, 1 / 8, 3)
    assert all(RandK(0.25).omega(d) <= 3 for d in range(1, 50))
    for unknown in (RandK(3), Dithering(4)):
        with pytest.raises(ScafflixError, match="depends on the size of the model; give omega"):
            unknown.omega()


def test_more_numbers_than_there_are_are_refused() -> None:
    with pytest.raises(ScafflixError, match=r"^k is 11; it must be at most 10, all of a message.$"):
        RandK(11).compress(jax.random.key(0), message())
    with pytest.raises(ScafflixError, match="k is 11; it must be at most 10"):
        RandK(11).bits(message())


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("rand_k:0", "k is 0.0; give a finite number above 0"),
        ("rand_k:2.5", "k is 2.5; give a whole number, or a share below 1"),
        ("rand_k:nan", "k is nan"),
        ("rand_k", "compressor is 'rand_k'; it must be identity"),
        ("natural:3", "compressor is 'natural:3'"),
        ("dithering:0", "levels is 0; give a whole number of at least 1"),
        ("dithering:1.5", "compressor is 'dithering:1.5'"),
        ("top_k:3", "compressor is 'top_k:3'"),
        (3, "compressor is 3; give text"),
    ],
)
def test_what_is_no_compressor_is_refused_in_one_sentence(text: Any, words: str) -> None:
    with pytest.raises(ScafflixError, match=words) as error:
        compressor_of(text)
    assert str(error.value).count(". ") == 0
