"""Minibatches of reduced variance, which any method can take: ProxSkip-VR's L-SVRG in NumPy, exact
gradients as a special case, the optimum instead of a noise floor, the guarantee."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import numpy as np
import pytest
from numpy.typing import NDArray

import miniature
import reference
import scafflix as sx
from cases import ALPHA, DIM, L2, ROUNDS, SIZES, Case, examples, follow
from executions import schedule, several, softmax_gradient
from made_up import made_up
from scafflix import algorithm
from scafflix.core import streams
from scafflix.core.streams import Stream
from scafflix.core.vector import names_of
from scafflix.gradients import Minibatch, Reduced
from scafflix.methods.method import Client, Point, fitted
from scafflix.theory import Plan

N, B = len(ALPHA), 3
pytestmark = pytest.mark.usefixtures("float64")


@pytest.fixture
def plan(logistic_case: Case) -> Plan:
    return sx.plan(logistic_case.problem, logistic_case.person, gradient=Reduced(B))


class ByTheLines:
    """Client i's estimates at one point after another, with the examples and coins of a seed."""

    def __init__(self, small: Case, i: int, seed: int = 0) -> None:
        self.i, self.f, (self.A, self.b) = i, small.functions[i], examples("logistic")[i]
        self.key, self.y = streams.key(seed, Stream.GRADIENT), None

    def __call__(self, r: int, x: Point, k: int) -> Point:
        self.y = x if self.y is None else self.y  # where its first step begins
        key = self.key
        for place in (r, self.i, k):
            key = jax.random.fold_in(key, place)
        rows = np.asarray(jax.random.randint(key, (B,), 0, SIZES[self.i], "int32"))
        batch = reference.logistic(self.A[rows], self.b[rows], L2)
        g = batch.gradient(x) - batch.gradient(self.y) + self.f.gradient(self.y)
        if float(jax.random.uniform(jax.random.fold_in(key, 1))) < B / SIZES[self.i]:
            self.y = x
        return g

    def in_turn(self, steps: list[int]) -> Callable[[Point], Point]:
        """The same in rounds of so many steps."""
        places = iter([(r, k) for r, K in enumerate(steps) for k in range(K)])

        def gradient(x: Point) -> Point:
            r, k = next(places)
            return self(r, x, k)

        return gradient


def test_scafflix_follows_the_papers_lines(logistic_case: Case, plan: Plan) -> None:
    small, method, start = logistic_case, sx.scafflix(plan), np.ones(DIM)
    course = follow(small.problem, small.person, method)
    iterates = reference.scafflix(
        [ByTheLines(small, i).in_turn(course.local_steps) for i in range(N)],
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


@pytest.mark.parametrize("cohort", [None, 3])
@pytest.mark.parametrize("name", ["scafflix", "gradskip", "ditto", "finetuning", "made_up"])
def test_every_execution_follows_them(
    logistic_case: Case, plan: Plan, name: str, cohort: int | None
) -> None:
    small, seed = logistic_case, 4
    method = {**sx.METHODS, "made_up": made_up}[name](plan)
    record = sx.run(small.problem, small.person, method, rounds=ROUNDS, seed=seed, cohort=cohort)
    method = fitted(method, names_of(small.problem.template))
    everyone = Client(ALPHA, np.asarray(method.gamma), None, np.array(SIZES), N)
    stars = np.asarray(small.person.x_star)
    clients = [Client(*one, float(N)) for one in zip(*everyone[:2], stars, SIZES, strict=True)]
    asked = [[ByTheLines(small, i, seed) for _ in range(2)] for i in range(N)]  # of two points

    def gradient(i: int, r: int, points: Any, k: int) -> Any:
        estimates = iter(asked[i])
        return several(lambda x: next(estimates)(r, x, k), points)

    made = algorithm.run(
        method,
        clients,
        np.ones(DIM),
        [np.zeros(DIM)] * N,
        gradient,
        schedule(method, everyone, seed, ROUNDS, cohort),
    )
    np.testing.assert_allclose(record.models["global"], made.server.x, rtol=1e-9, atol=1e-10)
    for i, client in enumerate(clients):
        anew = partial(ByTheLines(small, i, seed), ROUNDS)
        home = algorithm.take_home(method, client, made.states[i], made.server.x, anew)
        np.testing.assert_allclose(record.models["personal"][i], home, rtol=1e-9, atol=1e-10)


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


@pytest.mark.parametrize("kind", ["a cohort", "a network"])
def test_so_it_is_for_sampled_clients_and_for_networks(
    logistic_case: Case, plan: Plan, kind: str
) -> None:
    if kind == "a cohort":
        problem, person = logistic_case.problem, logistic_case.person
        plain = sx.plan(problem, person, gradient=Minibatch(B))
        gaps = [
            sx.run(problem, person, sx.scafflix(one), rounds=400, cohort=3, every=400).metrics[
                "objective_gap"
            ][-1]
            for one in (plain, plan)
        ]
        assert gaps[0] > 1e-5
        assert gaps[1] < 1e-7
        return
    small, ones = miniature.problem(), np.ones(miniature.N)
    squares = []
    for gradient in (Minibatch(B), Reduced(B)):
        method = miniature.method("scafflix", ones, 0.2 * ones, 0.2, gradient, pace="expected")
        trained = miniature.run(small, method, ones, None, rounds=300)
        means = [softmax_gradient(small, i, trained.x) for i in range(small.n)]
        squares.append(np.sum(np.mean([miniature.flat(one) for one in means], axis=0) ** 2))
    assert squares[1] < 1e-3 * squares[0]


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
    sizes = np.array(SIZES)
    assert isinstance(plan.gradient, Reduced)
    np.testing.assert_array_equal(plan.gradient.counts, sizes)
    np.testing.assert_array_equal(plan.gradient.renewal(sizes), B / sizes)
    assert plan.rate.zeta <= min(B / sizes) / 2
    given = sx.plan(problem, person, gradient=Reduced(B, q=0.001))
    assert given.rate.zeta == 0.0005


@pytest.mark.parametrize(
    ("gradient", "words"),
    [
        (Reduced(0), "batch is 0"),
        (Reduced(B, q=0.0), "q is 0; it must be above 0 and at most 1"),
        (Reduced(B, q=1.5), "q is 1.5; it must be above 0 and at most 1"),
        (Reduced(8), "batch is 8, but client client-3 has only 7"),
    ],
)
def test_bad_values_are_refused(logistic_case: Case, gradient: Reduced, words: str) -> None:
    with pytest.raises(sx.ScafflixError, match=words):
        sx.plan(logistic_case.problem, logistic_case.person, gradient=gradient)


def test_whole_gradients_have_no_variance_to_reduce() -> None:
    with pytest.raises(sx.ScafflixError, match="reduced is for minibatches; give batch"):
        sx.gradients.gradient("full", reduced=True)


def test_its_name_leads_to_it() -> None:
    with pytest.raises(sx.ScafflixError, match=r"proxskip_vr is .* with --batch B --reduced"):
        sx.methods.find("proxskip_vr")
