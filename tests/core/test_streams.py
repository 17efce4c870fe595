from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

import scafflix as sx
from cases import Case
from scafflix.core.streams import Stream, key, uniforms
from scafflix.simulate.batch import steps_of


def coin(case: Case, p: float, seed: int = 0, first: int = 0, number: int = 4000) -> np.ndarray:
    method = sx.scafflix(case.plan, p=p)
    return steps_of(method, seed, first, number)


@pytest.mark.parametrize("p", [0.05, 0.3, 0.9])
def test_local_steps_are_geometric(logistic_case: Case, p: float) -> None:
    K = coin(logistic_case, p)
    longest = int(np.ceil(np.log(5 / len(K)) / np.log(1 - p)))  # classes with 5 or more expected
    law = stats.geom(p)
    observed = [np.sum(k == K) for k in range(1, longest)] + [np.sum(longest <= K)]
    expected = [len(K) * law.pmf(k) for k in range(1, longest)] + [len(K) * law.sf(longest - 1)]
    assert stats.chisquare(observed, expected).pvalue > 1e-3
    assert K.min() >= 1


def test_local_steps_of_different_rounds_are_independent(logistic_case: Case) -> None:
    K = coin(logistic_case, 0.3)
    assert abs(np.corrcoef(K[:-1], K[1:])[0, 1]) < 4 / np.sqrt(len(K))


def test_a_coin_that_always_shows_1_makes_one_step_a_round(logistic_case: Case) -> None:
    assert (coin(logistic_case, 1.0) == 1).all()


def test_the_steps_of_a_round_depend_on_seed_and_round_alone(logistic_case: Case) -> None:
    whole = coin(logistic_case, 0.3, number=40)
    np.testing.assert_array_equal(coin(logistic_case, 0.3, first=17, number=9), whole[17:26])
    other = sx.fedavg(logistic_case.plan, p=0.3)
    np.testing.assert_array_equal(steps_of(other, 0, 0, 40), whole)


def test_another_seed_flips_another_coin(logistic_case: Case) -> None:
    first, second = (coin(logistic_case, 0.3, seed=seed) for seed in (0, 1))
    assert abs(np.corrcoef(first, second)[0, 1]) < 4 / np.sqrt(len(first))


def test_a_smaller_p_never_makes_a_round_shorter(logistic_case: Case) -> None:
    assert (coin(logistic_case, 0.1) >= coin(logistic_case, 0.2)).all()


def test_uniform_numbers_are_uniform_and_never_0() -> None:
    drawn = uniforms(7, Stream.COIN, 0, 4000)
    assert (drawn > 0).all()
    assert (drawn <= 1).all()
    assert stats.kstest(drawn, "uniform").pvalue > 1e-3


def test_streams_of_one_seed_differ() -> None:
    assert (key(0, Stream.COIN) != key(0, Stream.GRADIENT)).all()
    first, second = (uniforms(0, purpose, 0, 1000) for purpose in (Stream.COIN, Stream.GRADIENT))
    assert abs(np.corrcoef(first, second)[0, 1]) < 4 / np.sqrt(1000)
