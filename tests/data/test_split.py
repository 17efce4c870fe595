import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scafflix.core.errors import ScafflixError
from scafflix.data import from_arrays
from scafflix.data.split import (
    Contiguous,
    assign,
    contiguous,
    dirichlet,
    dirichlet_shares,
    fill_empty_clients,
    parse_split,
    shuffled,
)

sizes = st.integers(1, 60).flatmap(lambda rows: st.tuples(st.just(rows), st.integers(1, rows)))


@given(sizes)
def test_contiguous_cuts_as_numpy_array_split_does(size: tuple[int, int]) -> None:
    rows, clients = size
    expected = [len(part) for part in np.array_split(np.arange(rows), clients)]
    assert np.bincount(contiguous(rows, clients)).tolist() == expected
    assert (np.diff(contiguous(rows, clients)) >= 0).all()


@given(sizes, st.integers(0, 10))
def test_shuffled_parts_have_the_sizes_of_contiguous_ones(size: tuple[int, int], seed: int) -> None:
    rows, clients = size
    parts = shuffled(rows, clients, np.random.default_rng(seed))
    assert np.bincount(parts).tolist() == np.bincount(contiguous(rows, clients)).tolist()


def test_shuffled_mixes_the_rows() -> None:
    parts = shuffled(1000, 2, np.random.default_rng(0))
    assert 200 < parts[:500].sum() < 300


@given(
    sizes,
    st.floats(min_value=0, exclude_min=True, allow_infinity=False, allow_subnormal=True),
    st.integers(1, 5),
    st.integers(0, 10),
)
@settings(deadline=None)
def test_dirichlet_gives_every_client_a_row_for_any_beta(
    size: tuple[int, int], beta: float, classes: int, seed: int
) -> None:
    rows, clients = size
    labels = np.arange(rows) % classes
    parts = dirichlet(labels, clients, beta, np.random.default_rng(seed))
    assert len(parts) == rows
    assert set(parts.tolist()) == set(range(clients))


@pytest.mark.parametrize("beta", [5e-324, 1e-300, 1e-8, 0.1, 1.0, 1e8, 1e300, 1.7e308])
def test_dirichlet_shares_are_finite_and_add_up_to_one(beta: float) -> None:
    shares = dirichlet_shares(50, beta, np.random.default_rng(0))
    assert (shares >= 0).all()
    assert shares.sum() == pytest.approx(1.0)


def test_dirichlet_with_tiny_beta_gives_a_class_wholly_to_one_client() -> None:
    shares = dirichlet_shares(50, 1e-8, np.random.default_rng(0))
    assert np.count_nonzero(shares > 1e-12) == 1


def test_dirichlet_with_huge_beta_gives_every_client_the_same_mixture() -> None:
    labels = np.arange(1200) % 3
    parts = dirichlet(labels, 4, 1e8, np.random.default_rng(0))
    counts = np.array([np.bincount(labels[parts == i], minlength=3) for i in range(4)])
    assert np.abs(counts - 100).max() <= 1


@pytest.mark.parametrize("beta", [0.05, 0.5, 3.0])
def test_dirichlet_shares_have_the_mean_and_variance_of_the_distribution(beta: float) -> None:
    clients = 5
    random = np.random.default_rng(0)
    shares = np.array([dirichlet_shares(clients, beta, random) for _ in range(20_000)])
    variance = (clients - 1) / (clients**2 * (clients * beta + 1))
    np.testing.assert_allclose(shares.mean(axis=0), 1 / clients, atol=0.01)
    np.testing.assert_allclose(shares.var(axis=0), variance, rtol=0.05)


def test_an_empty_client_takes_the_last_row_of_the_largest() -> None:
    assert fill_empty_clients(np.array([1, 0, 1, 1]), 4).tolist() == [1, 0, 3, 2]


def test_filling_as_many_clients_as_rows_gives_each_one_row() -> None:
    filled = fill_empty_clients(np.zeros(2000, dtype=np.int64), 2000)
    assert sorted(filled.tolist()) == list(range(2000))


@pytest.mark.parametrize("split", ["contiguous", "shuffled", "dirichlet:0.3"])
def test_rows_within_a_client_keep_the_order_of_the_file(split: str) -> None:
    fed = from_arrays(np.arange(100.0)[:, None], np.arange(100) % 4, 7, split=split)
    for start, end in zip(fed.train.offsets, fed.train.offsets[1:], strict=False):
        assert (np.diff(fed.train.features[start:end, 0]) > 0).all()


@pytest.mark.parametrize("split", ["shuffled", "dirichlet:0.3"])
def test_the_seed_decides_the_split(split: str) -> None:
    labels = np.arange(100) % 4
    rule = parse_split(split)
    assert not isinstance(rule, Contiguous)
    first, again, other = (assign(rule, labels, 5, seed) for seed in (1, 1, 2))  # type: ignore[arg-type]
    assert first.tolist() == again.tolist()
    assert first.tolist() != other.tolist()


def test_dirichlet_splits_text_labels() -> None:
    labels = np.array(["cat", "dog"] * 10)
    assert set(dirichlet(labels, 3, 0.5, np.random.default_rng(0)).tolist()) == {0, 1, 2}


@pytest.mark.parametrize("beta", ["nan", "0", "-1", "inf", "-inf", "abc", ""])
def test_a_beta_that_is_no_positive_number_is_refused(beta: str) -> None:
    with pytest.raises(ScafflixError, match=r"beta of split.* is .*finite number above 0"):
        parse_split(f"dirichlet:{beta}")


@pytest.mark.parametrize("split", ["", "random", "dirichlet", "column", "column:", "shuffled:3"])
def test_an_unknown_split_is_refused_with_those_allowed(split: str) -> None:
    with pytest.raises(ScafflixError, match=f"split is '{split}'; give 'contiguous'"):
        parse_split(split)


@pytest.mark.parametrize("split", ["contiguous", "shuffled", "dirichlet:1"])
def test_more_clients_than_rows_are_refused_with_both_numbers(split: str) -> None:
    with pytest.raises(ScafflixError, match="clients is 4, but there are only 3 rows"):
        from_arrays(np.ones((3, 1)), np.ones(3), 4, split=split)
