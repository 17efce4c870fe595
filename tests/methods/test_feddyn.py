"""FedDyn: what h_i is where clients minimize, what the server keeps, and that it is exact."""

from __future__ import annotations

import numpy as np
import pytest

import scafflix as sx
from cases import ALPHA, Case
from scafflix import algorithm
from scafflix.algorithm import Outcome, Round
from scafflix.methods import Client, Method


def play(case: Case, method: Method, rounds: list[Round]) -> Outcome:
    stars, shape = np.asarray(case.person.x_star), case.problem.shape
    return algorithm.run(
        method,
        [Client(*one) for one in zip(ALPHA, np.asarray(method.gamma), stars, strict=True)],
        np.ones(shape),
        [np.zeros(shape)] * len(ALPHA),
        lambda i, r, points, k: case.functions[i].gradient(points),
        rounds,
    )


def test_control_variates_are_the_gradients_at_the_minimizers(logistic_case: Case) -> None:
    # first-order condition: grad f~_i(x_i) = h_i - a_i (x_i - x), which is the new h_i
    case, n, pull = logistic_case, len(ALPHA), 0.3
    method = sx.feddyn(case.plan, pull=pull)
    made = play(case, method, [Round(500, range(n))])
    a = pull / (np.asarray(method.gamma) / ALPHA**2)
    for i, f in enumerate(case.mixed(ALPHA)):
        x_i = 1 - made.states[i].h / a[i]
        np.testing.assert_allclose(made.states[i].h, f.gradient(x_i), rtol=1e-8, atol=1e-9)


@pytest.mark.parametrize("cohort", [None, 3])
def test_it_reaches_the_flix_optimum_where_fedprox_stops(
    logistic_case: Case, cohort: int | None
) -> None:
    problem, person, plan = logistic_case.problem, logistic_case.person, logistic_case.plan
    asked = {"rounds": 200, "cohort": cohort, "seed": 1}
    gaps = [
        sx.run(problem, person, method, **asked).metrics["objective_gap"][-1]
        for method in (sx.feddyn(plan), sx.fedprox(plan))
    ]
    assert gaps[0] < 1e-10 < 1e-6 < gaps[1]


@pytest.mark.parametrize("pull", [0.0, 1.0])
def test_a_pull_outside_0_and_1_is_refused(logistic_case: Case, pull: float) -> None:
    with pytest.raises(sx.ScafflixError, match="give a finite number above 0 and below 1"):
        sx.feddyn(logistic_case.plan, pull=pull)
