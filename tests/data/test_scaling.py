import numpy as np
import pytest
from scipy import sparse

from scafflix.core.errors import ScafflixError
from scafflix.data import admission, from_arrays

random = np.random.default_rng(0)
FEATURES = random.normal(size=(40, 3)) * [1.0, 100.0, 1e-3] + [0.0, 5.0, 1.0]
LABELS = np.arange(40) % 2


@pytest.mark.parametrize("layout", [np.asarray, sparse.csr_array])
def test_maxabs_brings_the_largest_value_of_each_feature_to_one(layout: type) -> None:
    fed = from_arrays(layout(FEATURES), LABELS, 4, scale="maxabs")
    np.testing.assert_allclose(
        abs(fed.train.features).max(axis=0).toarray()
        if layout is sparse.csr_array
        else abs(fed.train.features).max(axis=0),
        1.0,
    )


def test_maxabs_keeps_sparse_features_sparse() -> None:
    fed = from_arrays(sparse.csr_array([[0.0, 4.0], [2.0, 0.0]]), [0, 1], 1, scale="maxabs")
    assert isinstance(fed.train.features, sparse.csr_array)
    assert fed.train.features.nnz == 2


@pytest.mark.parametrize("layout", [np.asarray, sparse.csr_array])
def test_standard_gives_mean_zero_and_variance_one(layout: type) -> None:
    features = from_arrays(layout(FEATURES), LABELS, 4, scale="standard").train.features
    assert isinstance(features, np.ndarray)
    np.testing.assert_allclose(features.mean(axis=0), 0.0, atol=1e-12)
    np.testing.assert_allclose(features.std(axis=0), 1.0)


@pytest.mark.parametrize("value", [0.0, 0.1, -7.0, 1e300, 5e-324])
def test_a_constant_feature_becomes_zero_under_standard(value: float) -> None:
    fed = from_arrays(np.full((7, 1), value), np.ones(7), 1, scale="standard")
    assert fed.train.features.ravel().tolist() == [0.0] * 7


def test_a_feature_that_is_zero_everywhere_stays_zero_under_maxabs() -> None:
    fed = from_arrays(np.zeros((3, 2)), np.ones(3), 1, scale="maxabs")
    assert not fed.train.features.any()


def test_standard_survives_values_whose_squares_overflow() -> None:
    fed = from_arrays([[1e308], [-1e308]], [0, 1], 1, scale="standard")
    assert fed.train.features.ravel().tolist() == [1.0, -1.0]


def test_scales_come_from_the_training_rows_alone() -> None:
    fed = from_arrays(FEATURES, LABELS, 4, test=0.5, scale="standard")
    assert fed.test is not None
    np.testing.assert_allclose(fed.train.features.mean(axis=0), 0.0, atol=1e-12)
    assert abs(fed.test.features.mean(axis=0)).max() > 1e-6


def test_a_test_value_that_overflows_the_training_scale_is_refused() -> None:
    features = np.array([[1e-300], [1e300]])
    seed = next(
        s
        for s in range(50)
        if from_arrays(features, [0, 1], 1, test=0.5, seed=s).train.features[0, 0] == 1e-300
    )
    with pytest.raises(ScafflixError, match=r"test part after scale='maxabs': .* inf at \[0, 0\]"):
        from_arrays(features, [0, 1], 1, test=0.5, seed=seed, scale="maxabs")


def test_standard_refuses_to_make_dense_what_would_fill_the_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(admission, "DENSE_LIMIT", 5)
    with pytest.raises(ScafflixError, match="2 rows of 3 dense features exceed 5 entries"):
        from_arrays(sparse.csr_array(np.ones((2, 3))), [0, 1], 1, scale="standard")


@pytest.mark.parametrize("layout", [np.asarray, sparse.csr_array])
def test_the_intercept_is_a_last_column_of_ones_left_unscaled(layout: type) -> None:
    fed = from_arrays(layout(FEATURES), LABELS, 4, test=0.2, scale="maxabs", intercept=True)
    assert fed.dim == 4
    assert fed.test is not None
    for part in (fed.train, fed.test):
        assert type(part.features) is (np.ndarray if layout is np.asarray else layout)
        assert (part.features[:, [3]].sum()) == len(part.labels)


def test_validation_rows_follow_the_scale_of_the_training_rows() -> None:
    features = np.arange(1.0, 41.0)[:, None]
    plain = from_arrays(features, np.ones(40), 1, test=0.2, validation=0.2)
    scaled = from_arrays(features, np.ones(40), 1, test=0.2, validation=0.2, scale="maxabs")
    largest = plain.train.features.max()
    for name, part in scaled.parts.items():
        np.testing.assert_allclose(part.features * largest, plain.parts[name].features)


def test_a_test_part_without_rows_can_be_scaled() -> None:
    fed = from_arrays([[2.0], [4.0]], [0, 1], 2, test=0.4, scale="maxabs")
    assert fed.test is not None
    assert (fed.train.features.ravel().tolist(), len(fed.test.labels)) == ([0.5, 1.0], 0)
