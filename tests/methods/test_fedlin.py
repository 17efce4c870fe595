"""FedLin: two exchanges for a round, and gradient descent as a special case."""

from __future__ import annotations

import numpy as np
import pytest

import reference
import scafflix as sx
from cases import ALPHA, Case, follow


def test_every_second_round_is_an_exchange_of_gradients(logistic_case: Case) -> None:
    small = logistic_case
    course = follow(small.problem, small.person, sx.fedlin(small.plan, p=0.2))
    assert course.local_steps == [1, 5] * 6
    for before, after in zip(course.snapshots[:-1:2], course.snapshots[1::2], strict=True):
        np.testing.assert_array_equal(before.x, after.x)
        found = [
            f.gradient(a * after.x + (1 - a) * star)
            for f, a, star in zip(
                small.functions, ALPHA, np.asarray(small.person.x_star), strict=True
            )
        ]
        np.testing.assert_allclose(after.h, found, rtol=1e-10, atol=1e-12)


def test_two_local_steps_with_one_stepsize_are_two_of_gradient_descent(
    logistic_case: Case,
) -> None:
    small, step = logistic_case, 0.05
    course = follow(small.problem, small.person, sx.fedlin(small.plan, stepsize=step, p=0.5))
    whole = reference.average(small.mixed(ALPHA))
    points = reference.gd(whole.gradient, step, np.ones(small.problem.shape), 12)
    for found, expected in zip(course.snapshots[::2], points[::2], strict=True):
        np.testing.assert_allclose(found.x, expected, rtol=1e-10)


@pytest.mark.parametrize("cohort", [None, 3])
def test_it_reaches_the_optimum_where_fedavg_does_not(
    logistic_case: Case, cohort: int | None
) -> None:
    small, rounds = logistic_case, 1500
    every = None if cohort is None else rounds
    gaps = [
        sx.run(
            small.problem, small.person, make(small.plan), rounds=rounds, cohort=cohort, every=every
        ).metrics["objective_gap"][-1]
        for make in (sx.fedlin, sx.fedavg)
    ]
    assert gaps[0] < 1e-8
    assert gaps[1] > 1e-4


def test_without_a_round_of_local_steps_it_is_refused(logistic_case: Case) -> None:
    with pytest.raises(sx.ScafflixError, match="p is 1, with which fedlin makes no local steps"):
        sx.fedlin(logistic_case.plan, p=1.0)
