"""S-Local-SVRG: a reference renewed now and then, and FedLin as a special case."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import scafflix as sx
from cases import ROUNDS, Case, follow
from scafflix.core import streams
from scafflix.core.streams import Stream
from scafflix.gradients import Minibatch, Reduced


def test_with_q_1_it_is_fedlin_with_as_many_steps(logistic_case: Case) -> None:
    small = logistic_case
    mine = sx.s_local_svrg(small.plan, q=1.0)
    theirs = replace(sx.fedlin(small.plan), local_steps=mine.local_steps)
    found, expected = (follow(small.problem, small.person, one) for one in (mine, theirs))
    assert found.local_steps[::2] == [1] * (ROUNDS // 2)
    np.testing.assert_array_equal(found.snapshots[-1].x, expected.snapshots[-1].x)


def test_the_reference_is_renewed_with_probability_q_and_steps_are_geometric() -> None:
    p, q, rounds = 0.2, 0.3, 40_000
    one = np.ones(1)
    plan = sx.theory.without_theory(one, one, 0.5, sx.gradients.Exact())
    method = sx.s_local_svrg(plan, p=p, q=q)
    draws = streams.uniforms(1, Stream.COIN, 0, rounds)
    steps = method.local_steps(np.arange(rounds), draws)
    assert steps[0] == 1
    assert (steps[1::2] >= 2).all()
    renewed = (steps[::2] == 1).mean()
    assert abs(renewed - q) < 4.5 * np.sqrt(q * (1 - q) / (rounds / 2))
    # max(2, K) of a geometric K has the mean 1/p + p and about its deviation
    for made in (steps[1::2], steps[::2][steps[::2] > 1]):
        assert abs(made.mean() - (1 / p + p)) < 4.5 * np.sqrt((1 - p) / p**2 / len(made))
    assert abs(1 / method.p - steps.mean()) < 0.1


@pytest.mark.parametrize("cohort", [None, 3])
def test_it_reaches_the_optimum(logistic_case: Case, cohort: int | None) -> None:
    small, rounds = logistic_case, 1500
    record = sx.run(
        small.problem,
        small.person,
        sx.s_local_svrg(small.plan),
        rounds=rounds,
        cohort=cohort,
        every=None if cohort is None else rounds,
    )
    assert record.metrics["objective_gap"][-1] < 1e-8


def test_minibatches_lead_there_only_with_reduced_variance(logistic_case: Case) -> None:
    problem, person = logistic_case.problem, logistic_case.person
    gaps = []
    for gradient in (Minibatch(3), Reduced(3)):
        plan = sx.plan(problem, person, gradient=gradient)
        method = sx.s_local_svrg(plan, p=0.3)
        gaps.append(sx.run(problem, person, method, rounds=3000).metrics["objective_gap"][-1])
    assert gaps[0] > 1e-4
    assert gaps[1] < 1e-8


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"p": 1.0}, "p is 1, with which s_local_svrg makes no local steps"),
        ({"q": 0.0}, "q is 0"),
        ({"q": 1.5}, "q is 1.5; it must be above 0 and at most 1"),
    ],
)
def test_bad_values_are_refused(logistic_case: Case, options: dict[str, float], words: str) -> None:
    with pytest.raises(sx.ScafflixError, match=words):
        sx.s_local_svrg(logistic_case.plan, **options)
