"""Minibatches of reduced variance, which any method can take: ProxSkip-VR's L-SVRG in NumPy, exact
gradients as a special case, the optimum instead of a noise floor, the guarantee."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest
from numpy.typing import NDArray

import reference
import scafflix as sx
from cases import ALPHA, DIM, L2, SIZES, Case, examples, follow
from scafflix.core import streams
from scafflix.core.streams import Stream
from scafflix.gradients import Minibatch, Reduced
from scafflix.methods.method import Point
from scafflix.theory import Plan

N, B = len(ALPHA), 3
pytestmark = pytest.mark.usefixtures("float64")


@pytest.fixture
def plan(logistic_case: Case) -> Plan:
    return sx.plan(logistic_case.problem, logistic_case.person, gradient=Reduced(B))


class ByTheLines:
    """Client i's estimates, one after another, with the examples and coins of seed 0."""

    def __init__(self, small: Case, i: int, start: NDArray[np.float64], steps: list[int]) -> None:
        self.i, self.f, (self.A, self.b) = i, small.functions[i], examples("logistic")[i]
        self.y = ALPHA[i] * start + (1 - ALPHA[i]) * np.asarray(small.person.x_star)[i]
        self.places = iter([(r, k) for r, K in enumerate(steps) for k in range(K)])

    def __call__(self, x: Point) -> Point:
        key = streams.key(0, Stream.GRADIENT)
        r, k = next(self.places)
        for place in (r, self.i, k):
            key = jax.random.fold_in(key, place)
        rows = np.asarray(jax.random.randint(key, (B,), 0, SIZES[self.i], "int32"))
        batch = reference.logistic(self.A[rows], self.b[rows], L2)
        g = batch.gradient(x) - batch.gradient(self.y) + self.f.gradient(self.y)
        if float(jax.random.uniform(jax.random.fold_in(key, 1))) < B / SIZES[self.i]:
            self.y = x
        return g


def test_scafflix_follows_the_papers_lines(logistic_case: Case, plan: Plan) -> None:
    small, method, start = logistic_case, sx.scafflix(plan), np.ones(DIM)
    course = follow(small.problem, small.person, method)
    iterates = reference.scafflix(
        [ByTheLines(small, i, start, course.local_steps) for i in range(N)],
        list(np.asarray(small.person.x_star)),
        ALPHA.tolist(),
        method.gamma.tolist(),
        float(method.p),
        start,
        [np.zeros(DIM)] * N,
        reference.coin(course.local_steps),
    )
    np.testing.assert_allclose(course.snapshots[-1].x, iterates[-1].x[0], rtol=1e-10, atol=1e-11)
    np.testing.assert_allclose(course.snapshots[-1].h, iterates[-1].h, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("name", ["scafflix", "fedavg", "ditto"])
def test_where_a_clients_examples_are_alike_gradients_are_exact(name: str) -> None:
    random = np.random.default_rng(0)
    rows = {f"client-{i}": np.tile(random.normal(size=4), (6, 1)) for i in range(3)}
    labels = {client: [float(i)] * 6 for i, client in enumerate(rows)}
    federation = sx.data.from_clients({c: (rows[c], labels[c]) for c in rows})
    problem = sx.Problem(federation, sx.models.linear(), 0.3)
    person = sx.personalize(problem, 0.5)
    made = [
        sx.run(
            problem,
            person,
            sx.METHODS[name](sx.plan(problem, person, gradient=gradient), stepsize=0.05, p=0.3),
            rounds=8,
        ).models["global"]
        for gradient in (Reduced(2), None)
    ]
    np.testing.assert_allclose(*made, rtol=1e-12)


def test_minibatches_stop_short_of_the_optimum_and_these_do_not(
    logistic_case: Case, plan: Plan
) -> None:
    problem, person = logistic_case.problem, logistic_case.person
    plain = sx.plan(problem, person, gradient=Minibatch(B))
    gaps = []
    for advice in (plain, plan):
        runs = [sx.Run(person, sx.scafflix(advice), seed) for seed in range(3)]
        records = sx.sweep(problem, runs, rounds=1200)
        gaps.append([record.metrics["objective_gap"][-1] for record in records])
    assert min(gaps[0]) > 1e-5
    assert max(gaps[1]) < 1e-11


@pytest.mark.parametrize("name", ["scafflix", "gradskip"])
def test_psi_stays_under_its_guarantee(logistic_case: Case, plan: Plan, name: str) -> None:
    method = sx.METHODS[name](plan)
    assert 0 < method.rate.zeta <= B / max(SIZES) / 2
    assert method.rate.noise == 0
    runs = [sx.Run(logistic_case.person, method, seed) for seed in range(40)]
    records = sx.sweep(logistic_case.problem, runs, rounds=40)
    ratios = np.array([r.metrics["lyapunov"] / r.metrics["lyapunov_bound"] for r in records])
    mean, error = ratios.mean(axis=0), ratios.std(axis=0) / np.sqrt(len(runs))
    assert (mean <= 1 + 4 * error).all()


def test_the_constants_bound_what_they_say(logistic_case: Case) -> None:
    # the two inequalities from which the guarantee follows, with exact expectations over examples
    small, random = logistic_case, np.random.default_rng(3)
    L, each = small.problem.constants.L, small.problem.constants.L_example
    for i, (A, b) in enumerate(examples("logistic")):
        f = small.functions[i]
        ones = [reference.logistic(A[[j]], b[[j]], L2) for j in range(len(b))]

        def slopes(x: Point, ones: Any = ones) -> NDArray[np.float64]:
            return np.array([one.gradient(x) for one in ones])

        for _ in range(10):
            x, y, z = (random.normal(size=DIM) * random.uniform(0.1, 3) for _ in range(3))
            D = f.value(x) - f.value(z) - f.gradient(z) @ (x - z)
            spread = slopes(x) - slopes(y)
            variance = np.mean(np.sum((spread - spread.mean(axis=0)) ** 2, axis=1)) / B
            error = np.sum((f.gradient(x) - f.gradient(z)) ** 2) + variance
            memory = np.mean(np.sum((slopes(y) - slopes(z)) ** 2, axis=1))
            assert error <= 2 * (L[i] + 2 * each[i] / B) * D + 2 / B * memory
            assert np.mean(np.sum((slopes(x) - slopes(z)) ** 2, axis=1)) <= 2 * each[i] * D + 1e-12


def test_q_is_the_share_of_a_batch_unless_given(logistic_case: Case, plan: Plan) -> None:
    problem, person = logistic_case.problem, logistic_case.person
    np.testing.assert_allclose(plan.gradient.q, B / np.array(SIZES))
    given = sx.plan(problem, person, gradient=Reduced(B, q=0.5))
    np.testing.assert_array_equal(given.gradient.q, np.full(N, 0.5))


@pytest.mark.parametrize(
    ("gradient", "words"),
    [
        (Reduced(0), "batch is 0"),
        (Reduced(B, q=0.0), "q is 0.0; it must be above 0 and at most 1"),
        (Reduced(B, q=1.5), "q is 1.5; it must be above 0 and at most 1"),
        (Reduced(8), "batch is 8, but client client-3 has only 7"),
    ],
)
def test_bad_values_are_refused(logistic_case: Case, gradient: Reduced, words: str) -> None:
    with pytest.raises(sx.ScafflixError, match=words):
        sx.plan(logistic_case.problem, logistic_case.person, gradient=gradient)


def test_it_is_refused_where_there_is_no_memory(logistic_case: Case, plan: Plan) -> None:
    small = logistic_case
    with pytest.raises(sx.ScafflixError, match="for rounds of all clients of a linear model"):
        sx.run(small.problem, small.person, sx.scafflix(plan), rounds=2, cohort=3)
    with pytest.raises(sx.ScafflixError, match="reduced is for minibatches; give batch"):
        sx.gradients.gradient("full", reduced=True)


def test_its_name_leads_to_it() -> None:
    with pytest.raises(sx.ScafflixError, match=r"proxskip_vr is .* with --batch B --reduced"):
        sx.methods.find("proxskip_vr")
