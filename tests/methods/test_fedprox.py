"""FedProx: FedAvg where nothing pulls, and where it stops."""

from __future__ import annotations

import numpy as np
import pytest

import scafflix as sx
from cases import ALPHA, Case, follow

P = 0.2


def test_without_a_pull_it_is_fedavg(case: Case) -> None:
    fedprox = follow(case.problem, case.person, sx.fedprox(case.plan, p=P, pull=0.0))
    fedavg = follow(case.problem, case.person, sx.fedavg(case.plan, p=P))
    for one, other in zip(fedprox.snapshots, fedavg.snapshots, strict=True):
        np.testing.assert_allclose(one.x, other.x, rtol=1e-12, atol=1e-13)


def test_a_stronger_pull_stops_nearer_to_the_optimum_but_short_of_it(logistic_case: Case) -> None:
    problem, person, plan = logistic_case.problem, logistic_case.person, logistic_case.plan
    step = 0.5 * float((plan.gamma / ALPHA**2).min())
    methods = [sx.fedprox(plan, stepsize=step, p=P, pull=pull) for pull in (0.0, 0.1, 1.0)]
    records = sx.sweep(problem, [sx.Run(person, method) for method in methods], rounds=1000)
    gaps = [np.median(record.metrics["objective_gap"][-100:]) for record in records]
    assert gaps[0] > 1.05 * gaps[1] > 1.5 * gaps[2] > 1e-6


def test_the_default_stepsize_suits_the_proximal_objective(logistic_case: Case) -> None:
    plan = logistic_case.plan
    for pull in (0.0, 0.3, 7.0):
        step = sx.fedprox(plan, pull=pull).gamma / ALPHA**2
        np.testing.assert_allclose(1 / step, (ALPHA**2 * plan.A).max() + pull)


def test_a_pull_below_0_is_refused(logistic_case: Case) -> None:
    with pytest.raises(sx.ScafflixError, match=r"pull is -0\.5; give a finite number of at least"):
        sx.fedprox(logistic_case.plan, pull=-0.5)
