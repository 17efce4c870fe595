"""SCAFFOLD: what it is with one step, what the server keeps, and that it reaches the optimum."""

from __future__ import annotations

import numpy as np
import pytest

import scafflix as sx
from cases import ALPHA, Case, follow


def test_with_one_local_step_it_is_gd(case: Case) -> None:
    # with individual stepsizes as well: the harmonic mean of 1/L~_i is the stepsize of gd
    scaffold = follow(case.problem, case.person, sx.scaffold(case.plan, p=1.0))
    gd = follow(case.problem, case.person, sx.gd(case.plan))
    for one, other in zip(scaffold.snapshots, gd.snapshots, strict=True):
        np.testing.assert_allclose(one.x, other.x, rtol=1e-10, atol=1e-11)


@pytest.mark.parametrize("cohort", [None, 3])
def test_it_reaches_the_flix_optimum_with_local_steps(
    logistic_case: Case, cohort: int | None
) -> None:
    problem, person, plan = logistic_case.problem, logistic_case.person, logistic_case.plan
    method = sx.scaffold(plan)
    assert method.local_steps(0, 0.5) >= 5
    record = sx.run(problem, person, method, rounds=120, cohort=cohort, seed=1)
    assert record.metrics["objective_gap"][-1] < 1e-10
    assert record.metrics["lyapunov"][-1] < 1e-8  # control variates too


def test_individual_stepsizes_take_fewer_rounds_than_a_common_one(logistic_case: Case) -> None:
    problem, person, plan = logistic_case.problem, logistic_case.person, logistic_case.plan
    own = sx.scaffold(plan)
    common = sx.scaffold(plan, stepsize=float((own.gamma / ALPHA**2).min()))
    pair = sx.sweep(problem, [sx.Run(person, method) for method in (own, common)], rounds=200)
    rounds = [int(np.argmax(record.metrics["objective_gap"] < 1e-6)) for record in pair]
    assert 0 < 2 * rounds[0] < rounds[1]


def test_it_takes_as_many_steps_in_every_round(logistic_case: Case) -> None:
    method = sx.scaffold(logistic_case.plan, p=0.3)
    assert method.local_steps(np.arange(3), np.array([0.01, 0.5, 1.0])).tolist() == [3, 3, 3]
    assert method.p == 1 / 3


def test_a_server_that_does_not_move_is_refused(logistic_case: Case) -> None:
    with pytest.raises(sx.ScafflixError, match="server_stepsize is 0; give a finite number above"):
        sx.scaffold(logistic_case.plan, server_stepsize=0)
