import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from scafflix.core.arguments import real_number
from scafflix.core.errors import ScafflixError
from scafflix.data import from_arrays


@given(
    st.lists(st.integers(0, 5), min_size=1, max_size=60),
    st.floats(0, 1, exclude_min=True, exclude_max=True),
    st.integers(0, 5),
)
@settings(deadline=None)
def test_every_client_gives_its_fraction_and_keeps_a_row(
    ids: list[int], fraction: float, seed: int
) -> None:
    fed = from_arrays(np.arange(len(ids))[:, None], ids, ids, test=fraction, seed=seed)
    assert fed.test is not None
    total = fed.train.counts + fed.test.counts
    assert (fed.train.counts >= 1).all()
    assert fed.test.counts.tolist() == [min(round(fraction * n), n - 1) for n in total.tolist()]
    both = np.concatenate([fed.train.features[:, 0], fed.test.features[:, 0]])
    assert sorted(both) == list(range(len(ids)))
    for part in (fed.train, fed.test):
        assert [fed.clients[i] for i in part.owners] == [str(y) for y in part.labels]


def test_nothing_held_out_means_no_test_part() -> None:
    assert from_arrays([[1.0], [2.0]], [0, 1], 1).test is None


def test_a_client_with_one_row_has_no_test_row() -> None:
    fed = from_arrays([[1.0], [2.0]], [0, 1], 2, test=0.9)
    assert fed.test is not None
    assert fed.test.counts.tolist() == [0, 0]


def test_held_out_rows_are_drawn_at_random_by_the_seed() -> None:
    features = np.arange(100.0)[:, None]
    held = [from_arrays(features, np.ones(100), 2, test=0.3, seed=seed).test for seed in (0, 0, 1)]
    rows = [part.features[:, 0].tolist() for part in held if part is not None]
    assert rows[0] == rows[1] != rows[2]
    assert max(rows[0][:15]) > 30  # not simply the first rows


def test_sparse_rows_are_held_out_whole() -> None:
    fed = from_arrays(sparse.csr_array(np.eye(6)), np.arange(6), 2, test=0.34)
    assert fed.test is not None
    for part in (fed.train, fed.test):
        assert part.features.toarray().argmax(axis=1).tolist() == part.labels.tolist()


@pytest.mark.parametrize("fraction", [-0.1, 1.0, 2, np.nan, np.inf, "half", None, True, 1j])
def test_a_fraction_outside_zero_and_one_is_refused(fraction: float) -> None:
    with pytest.raises(ScafflixError, match=r"test is .* finite number of at least 0 and below 1"):
        from_arrays([[1.0]], [0], 1, test=fraction)


def test_an_integer_too_large_for_a_float_is_refused() -> None:
    with pytest.raises(ScafflixError, match="finite number of at least 0"):
        real_number("noise", 10**400)


def test_validation_rows_are_drawn_from_what_the_test_part_leaves() -> None:
    features = np.arange(100.0)[:, None]
    plain = from_arrays(features, np.ones(100), 2, test=0.2)
    fed = from_arrays(features, np.ones(100), 2, test=0.2, validation=0.25)
    assert plain.test is not None
    assert fed.test is not None
    assert fed.validation is not None
    assert fed.test.features.tolist() == plain.test.features.tolist()
    assert fed.validation.counts.tolist() == [10, 10]
    rows = np.concatenate([part.features[:, 0] for part in fed.parts.values()])
    assert sorted(rows) == list(range(100))


def test_validation_and_test_rows_are_drawn_apart() -> None:
    features = np.arange(100.0)[:, None]
    test = from_arrays(features, np.ones(100), 2, test=0.2).test
    validation = from_arrays(features, np.ones(100), 2, validation=0.2).validation
    assert test is not None
    assert validation is not None
    assert test.features.tolist() != validation.features.tolist()


def test_a_validation_fraction_outside_zero_and_one_is_refused() -> None:
    with pytest.raises(ScafflixError, match=r"validation is 1\.0; give a finite number"):
        from_arrays([[1.0]], [0], 1, validation=1.0)
