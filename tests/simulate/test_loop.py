from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import scafflix as sx
from cases import ALPHA, ROUNDS, Case, Course, follow
from scafflix.gradients import Exact, Gradient, Minibatch, Noisy
from scafflix.methods import METHODS
from scafflix.simulate.planning import optima


def warm(case: Case, gamma: NDArray[np.float64]) -> Any:
    """The projected gradients at the start."""
    stars = np.asarray(case.person.x_star)
    start = np.ones(case.problem.shape)
    gradients = [
        f.gradient(ALPHA[i] * start + (1 - ALPHA[i]) * stars[i])
        for i, f in enumerate(case.functions)
    ]
    return np.asarray(sx.control.project(np.array(gradients), ALPHA, gamma))


def weighted_sums(course: Course) -> NDArray[np.float64]:
    """||sum_i alpha_i h_i|| after each round, over sum_i alpha_i ||h_i||."""
    ratios = []
    for snapshot in course.snapshots[1:]:
        assert snapshot.h is not None
        h = snapshot.h.reshape(len(ALPHA), -1)
        ratios.append(np.linalg.norm(ALPHA @ h) / (ALPHA @ np.linalg.norm(h, axis=1)))
    return np.array(ratios)


@pytest.mark.parametrize("start", ["zero", "warm"])
def test_the_weighted_sum_of_control_variates_stays_0(case: Case, start: str) -> None:
    h0 = None if start == "zero" else warm(case, case.plan.gamma)
    course = follow(case.problem, case.person, sx.scafflix(case.plan), h0=h0)
    assert weighted_sums(course).max() <= 1e-13


@pytest.mark.parametrize("gradient", [Noisy(1.0), Minibatch(4)], ids=str)
def test_the_weighted_sum_stays_0_with_stochastic_gradients(
    logistic_case: Case, gradient: Gradient
) -> None:
    problem, person = logistic_case.problem, logistic_case.person
    plan = sx.plan(problem, person, gradient=gradient)
    course = follow(problem, person, sx.scafflix(plan))
    assert weighted_sums(course).max() <= 1e-13


def test_the_plain_sum_of_control_variates_does_not_stay_0(logistic_case: Case) -> None:
    # the paper's line 1 would have it so: with unequal alpha_i it is another quantity
    case = logistic_case
    course = follow(case.problem, case.person, sx.scafflix(case.plan))
    last = course.snapshots[-1].h
    assert last is not None
    assert np.linalg.norm(last.sum(axis=0)) > 0.1 * np.linalg.norm(last, axis=1).sum()


def test_an_iteration_is_counted_for_every_local_step(logistic_case: Case) -> None:
    case = logistic_case
    course = follow(case.problem, case.person, sx.scafflix(case.plan))
    counted = [snapshot.iterations for snapshot in course.snapshots]
    assert counted == [0, *np.cumsum(course.local_steps)]
    assert max(course.local_steps) > 1


@pytest.mark.parametrize("gradient", [Exact(), Noisy(1.0), Minibatch(4)], ids=str)
@pytest.mark.parametrize("name", ["scafflix", "nesterov"])
def test_round_by_round_is_the_same_as_all_at_once(
    logistic_case: Case, name: str, gradient: Gradient
) -> None:
    problem, person = logistic_case.problem, logistic_case.person
    method = METHODS[name](sx.plan(problem, person, gradient=gradient))
    course = follow(problem, person, method, seed=3)
    record = sx.run(problem, person, method, rounds=ROUNDS, seed=3)
    np.testing.assert_array_equal(record.models["global"], course.snapshots[-1].x)
    np.testing.assert_array_equal(record.metrics["local_steps"][1:], course.local_steps)


def test_controls_tend_to_the_gradients_at_the_optimum(linear_case: Case) -> None:
    case = linear_case
    course = follow(case.problem, case.person, sx.scafflix(case.plan), rounds=100)
    (optimum,) = optima(case.problem, [case.person])
    errors = [np.linalg.norm(s.h - optimum.h) for s in (course.snapshots[0], course.snapshots[-1])]
    assert errors[1] <= 1e-6 * errors[0]
