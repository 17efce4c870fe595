from typing import Any

import numpy as np
import pytest

from scafflix.core.errors import ScafflixError
from scafflix.data import admission, synthetic
from scafflix.data.synthesis import parse_synthetic


@pytest.mark.parametrize("conditioning", [1.0, 10.0, 1e6])
def test_mean_squared_row_norms_rise_geometrically_to_the_conditioning(conditioning: float) -> None:
    features = synthetic(clients=5, conditioning=conditioning).train.features
    squares = (features**2).sum(axis=1).reshape(5, 50).mean(axis=1)
    np.testing.assert_allclose(squares, np.geomspace(1.0, conditioning, 5))


def test_smoothness_constants_differ_about_as_the_conditioning_says() -> None:
    features = synthetic(clients=3, rows=2000, conditioning=100.0).train.features
    largest = [np.linalg.eigvalsh(a.T @ a / 2000)[-1] for a in np.split(features, 3)]
    assert largest[2] / largest[0] == pytest.approx(100.0, rel=0.1)


@pytest.mark.parametrize("optima", [0.0, 0.5, 4.0])
def test_least_squares_finds_optima_as_far_apart_as_asked_for(optima: float) -> None:
    fed = synthetic(clients=4, features=20, optima=optima, task="linear", noise=0.0)
    base = synthetic(clients=4, features=20, optima=0.0, task="linear", noise=0.0)

    def solutions(federation: Any) -> Any:
        parts = zip(
            np.split(federation.train.features, 4),
            np.split(federation.train.labels, 4),
            strict=True,
        )
        return np.array([np.linalg.lstsq(a, b)[0] for a, b in parts])

    distance = np.sqrt(((solutions(fed) - solutions(base)) ** 2).mean(axis=1))
    np.testing.assert_allclose(distance, optima, atol=1e-9)


def test_the_knobs_leave_the_features_of_a_seed_alone() -> None:
    first = synthetic(optima=0.0, noise=0.0, task="linear").train.features
    second = synthetic(optima=9.0, noise=1.0, task="logistic").train.features
    assert first.tolist() == second.tolist()


def test_logistic_labels_are_plus_and_minus_one() -> None:
    assert np.unique(synthetic().train.labels).tolist() == [-1, 1]


def test_softmax_labels_are_the_classes() -> None:
    assert np.unique(synthetic(task="softmax", classes=4).train.labels).tolist() == [0, 1, 2, 3]


def test_the_seed_decides_the_data() -> None:
    first, again, other = (synthetic(seed=seed).train.features.tolist() for seed in (3, 3, 4))
    assert first == again != other


def test_one_client_with_one_row_is_possible() -> None:
    fed = synthetic(clients=1, rows=1, features=1)
    assert np.abs(fed.train.features).tolist() == [[1.0]]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"clients": 0}, "clients is 0"),
        ({"rows": 0}, "rows is 0"),
        ({"features": 1.5}, "features is 1.5"),
        ({"optima": -1.0}, "optima is -1.0"),
        ({"optima": np.nan}, "optima is nan"),
        ({"conditioning": 0.5}, "conditioning is 0.5; give a finite number of at least 1"),
        ({"conditioning": np.inf}, "conditioning is inf"),
        ({"noise": -1}, "noise is -1"),
        ({"task": "ranking"}, "task is 'ranking'; it must be logistic, linear or softmax"),
        ({"task": "softmax", "classes": 1}, "classes is 1"),
        ({"seed": -1}, "seed is -1"),
    ],
)
def test_knobs_out_of_range_are_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ScafflixError, match=message):
        synthetic(**arguments)


@pytest.mark.parametrize("knob", ["optima", "noise"])
def test_knobs_so_large_that_labels_overflow_are_refused(knob: str) -> None:
    with pytest.raises(ScafflixError, match="give infinite labels; make them smaller"):
        synthetic(**{knob: 1.7e308})  # type: ignore[arg-type]


def test_data_that_would_fill_the_memory_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admission, "DENSE_LIMIT", 100)
    with pytest.raises(ScafflixError, match="synthetic: 500 rows of 20 dense features exceed"):
        synthetic()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("spread=2", "no option 'spread=2'; give NAME=VALUE, where NAME is one of clients"),
        ("optima", "optima is ''; give a number"),
        ("rows=2.5", "rows is '2.5'; give a whole number"),
        ("rows=1,rows=2", "'rows' is given twice"),
    ],
)
def test_options_that_cannot_be_read_are_refused(options: str, message: str) -> None:
    with pytest.raises(ScafflixError, match=message):
        parse_synthetic(options)
