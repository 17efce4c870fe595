"""What travels of a compressed message: what arrives is C(x), bit for bit, of exactly so many
bits."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest

from scafflix import ScafflixError, algorithm
from scafflix.core.durable import Arrays
from scafflix.core.vector import Vector
from scafflix.methods.compressors import Dithering, Identity, Natural, RandK
from scafflix.methods.draws import Draws
from scafflix.methods.method import Compressor, Turn
from scafflix.methods.packing import packed, packed_bytes, unpacked
from scafflix.methods.tamuna import Mask

COHORT = 5
EVERY: dict[str, Compressor] = {
    "identity": Identity(),
    "rand_k of a number": RandK(7),
    "rand_k of a share": RandK(0.3),
    "rand_k of everything": RandK(31),
    "natural": Natural(),
    "dithering": Dithering(5),
    "coarse dithering": Dithering(1),
    "fine dithering": Dithering(2**20),
    "mask": Mask(2),
    "mask of everything": Mask(COHORT),
}
TYPES = {"float32": "ff", "float64": "dd", "both": "fd"}


@pytest.fixture(params=EVERY)
def compressor(request: pytest.FixtureRequest) -> Compressor:
    return EVERY[request.param]


@pytest.fixture(params=TYPES)
def message(request: pytest.FixtureRequest) -> Vector:
    """31 numbers of either sign and unlike size, and zeros, in arrays of any rank."""
    one, other = TYPES[request.param]
    draw = np.random.default_rng(1)
    x = draw.normal(size=31) * np.geomspace(1e-12, 1e6, 31)
    x[[3, 17]] = 0, -0.0
    a, b, c = x[:12].reshape(2, 3, 2).astype(one), x[12:30].astype(other), x[30:].astype(one)
    return Vector({"a": a, "b": b, "c": c.reshape(()), "nothing": np.zeros((0, 3), other)})


def turn(place: int = 3, round: int = 2) -> Turn:
    return algorithm.turn_of(9, round, place, COHORT)


def same(mine: Any, theirs: Any) -> bool:
    pairs = zip(jax.tree.leaves(mine), jax.tree.leaves(theirs), strict=True)
    return all((a.dtype, a.shape, a.tobytes()) == (b.dtype, b.shape, b.tobytes()) for a, b in pairs)


def test_what_is_decoded_is_what_is_applied_bit_for_bit(
    compressor: Compressor, message: Vector
) -> None:
    for place in range(COHORT):
        with jax.enable_x64(True):  # as at a client with a linear model; the server need not be
            sent = compressor.encode(turn(place), message)
            applied = compressor.apply(turn(place), message)
        assert same(compressor.decode(turn(place), sent, 0 * message), applied)


def test_as_many_bits_travel_as_it_says(compressor: Compressor, message: Vector) -> None:
    for place in range(COHORT):
        sent = compressor.encode(turn(place), message)
        assert 8 * sum(array.nbytes for array in sent) == compressor.bits(message, COHORT)


def test_shapes_and_types_on_the_wire_are_known_beforehand(
    compressor: Compressor, message: Vector
) -> None:
    def forms(arrays: Arrays) -> list[Any]:
        return [(array.dtype, array.shape) for array in arrays]

    expected = forms(compressor.encode(turn(), 0 * message))
    assert all(
        forms(compressor.encode(turn(place, round), message)) == expected
        for place in range(COHORT)
        for round in range(3)
    )


def test_arrays_of_jax_are_encoded_as_those_of_numpy(compressor: Compressor) -> None:
    x = np.random.default_rng(0).normal(size=(4, 8)).astype(np.float32)
    mine, theirs = (compressor.encode(turn(), made) for made in (x, jax.numpy.asarray(x)))
    assert same(mine, theirs)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_does_not_arrive_as_if_it_were(bad: float) -> None:
    x = np.ones(8, np.float32)
    x[2] = bad
    with np.errstate(invalid="ignore"):
        for compressor in (Identity(), RandK(8), Natural(), Dithering(3), Mask(COHORT)):
            for place in range(COHORT):
                applied = compressor.apply(turn(place), x)
                arrived = compressor.decode(turn(place), compressor.encode(turn(place), x), x)
                assert not np.isfinite(applied[2])
                assert not np.isfinite(arrived[2])


def test_a_level_or_a_norm_that_nobody_encodes_is_refused() -> None:
    x, compressor = np.ones(10, np.float32), Dithering(5)
    norm, content = compressor.encode(turn(), x)
    with pytest.raises(ScafflixError, match=r"the largest code 15; they must be .* at most 10"):
        compressor.decode(turn(), (norm, np.full_like(content, 255)), x)
    with pytest.raises(ScafflixError, match="the norm is -3"):
        compressor.decode(turn(), (np.float32([-3]), content), x)


@pytest.mark.parametrize("width", [1, 2, 5, 7, 8, 9, 12, 16, 21, 25])
def test_packed_numbers_have_no_bit_between_them(width: int) -> None:
    for count in (0, 1, 7, 8, 9, 100):
        numbers = np.random.default_rng(count).integers(0, 2**width, count, np.uint32)
        content = packed(numbers, width)
        assert len(content) == packed_bytes(count, width) == -(-count * width // 8)
        np.testing.assert_array_equal(unpacked(content, width, count), numbers)


@pytest.mark.parametrize(("d", "k"), [(1, 1), (2, 1), (12, 5), (97, 97), (30030, 3003)])
def test_rand_k_sends_k_numbers_whatever_d_is(d: int, k: int) -> None:
    x, keys = np.ones((1, d), np.float32), jax.random.split(jax.random.key(d), 3)
    compiled = jax.jit(jax.vmap(RandK(k).compress, (0, None)))(keys, x)
    for key, theirs in zip(keys, compiled, strict=True):
        sieve = RandK(k).sieve(key, x)
        places = (int(sieve.a) * np.arange(d) + int(sieve.b)) % d
        assert len(set(places.tolist())) == d  # a permutation
        for sent in (theirs, RandK(k).compress(key, x)):
            np.testing.assert_array_equal(np.asarray(sent)[0] != 0, places < k)


def test_numbers_that_rand_k_sends_together_are_no_neighbours_as_a_rule() -> None:
    d, k, keys = 1009, 101, jax.random.split(jax.random.key(2), 4000)
    sent = np.asarray(jax.vmap(RandK(k).compress, (0, None))(keys, jax.numpy.ones(d))) != 0
    together = k * (k - 1) / (d * (d - 1))  # of two numbers, if all subsets were alike
    slack = 5 * np.sqrt(together / len(keys))
    for j in (1, 2, 3, 500, 1008):
        assert abs((sent[:, 0] & sent[:, j]).mean() - together) < slack


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_what_is_drawn_for_one_number_says_nothing_of_another(dtype: Any) -> None:
    places = np.finfo(dtype).nmant
    with jax.enable_x64(dtype == np.float64):
        x, keys = jax.numpy.zeros(64, dtype), jax.random.split(jax.random.key(4), 4000)
        bits = np.asarray(jax.vmap(lambda key: Draws(key, x).bits(x, 5, places))(keys))
        np.testing.assert_array_equal(Draws(keys[0], np.asarray(x)).bits(x, 5, places), bits[0])
    drawn = bits / 2.0**places
    np.testing.assert_allclose(drawn.mean(axis=0), 0.5, atol=5 / np.sqrt(12 * len(keys)))
    apart = np.corrcoef(drawn.T) - np.eye(64)
    assert np.abs(apart).max() < 5.5 / np.sqrt(len(keys))
    neighbours = np.corrcoef(drawn[:, :-1].ravel(), drawn[:, 1:].ravel())[0, 1]
    assert abs(neighbours) < 5 / np.sqrt(drawn.size)
