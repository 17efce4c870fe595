"""5GCS: the paper's lines in NumPy, exact proximal steps, one gradient a round, the guarantee."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import scafflix as sx
from cases import ALPHA, DIM, L2, ROUNDS, Case, case, examples, follow
from executions import schedule
from scafflix import algorithm
from scafflix.algorithm import Round
from scafflix.methods import Client, Method
from scafflix.methods.five_gcs import gradients_needed, guarantee
from scafflix.simulate.planning import optima

Point = NDArray[np.float64]
N = len(ALPHA)
CLOSE: dict[str, Any] = {"rtol": 1e-10, "atol": 1e-10}


def by_the_lines(small: Case, method: Method, rounds: Sequence[Round]) -> tuple[Point, Point]:
    """The model and the dual variables, in the scale of f~_i; the proximal point by K - 1 gradient
    steps, and a last gradient there."""
    gradients = [f.gradient for f in small.mixed(ALPHA)]
    tau, smooth = method.settings["tau"], ALPHA**2 / np.asarray(method.gamma)
    gamma = 1 / (2 * tau)
    x, u = np.ones(DIM), np.zeros((N, DIM))
    for K, cohort, *_ in rounds:
        x_hat = x - gamma * u.mean(axis=0)
        new = u.copy()
        for i in cohort:
            y = x_hat
            for _ in range(K - 1):
                y = y - (gradients[i](y) - u[i] + tau * (y - x_hat)) / (smooth[i] + tau)
            new[i] = gradients[i](y)
        x = x_hat - gamma * N / len(cohort) * (new.mean(axis=0) - u.mean(axis=0))
        u = new
    return x, u


@pytest.mark.parametrize("cohort", [None, 3])
def test_the_simulator_follows_the_papers_lines(logistic_case: Case, cohort: int | None) -> None:
    small, seed = logistic_case, 4
    method = sx.five_gcs(small.plan, cohort=cohort, p=0.25)
    record = sx.run(small.problem, small.person, method, rounds=ROUNDS, seed=seed, cohort=cohort)
    everyone = Client(ALPHA, np.asarray(method.gamma), None, np.ones(N), N)
    x, _ = by_the_lines(small, method, schedule(method, everyone, seed, ROUNDS, cohort))
    np.testing.assert_allclose(record.models["global"], x, **CLOSE)
    assert np.abs(x - 1).max() > 1e-2


def test_idle_clients_keep_their_dual_variables(logistic_case: Case) -> None:
    small = logistic_case
    method = sx.five_gcs(small.plan, cohort=2, p=0.25)
    stars = np.asarray(small.person.x_star)
    made = algorithm.run(
        method,
        [Client(a, g, x) for a, g, x in zip(ALPHA, method.gamma, stars, strict=True)],
        np.ones(DIM),
        [np.zeros(DIM)] * N,
        lambda i, r, point, k: small.functions[i].gradient(point),
        rounds := [Round(4, (0, 3)), Round(4, (1, 3))],
    )
    u = np.array([state.u for state in made.states])
    np.testing.assert_allclose(u, by_the_lines(small, method, rounds)[1], **CLOSE)
    assert not u[[2, 4]].any()
    np.testing.assert_allclose(made.server.u, u.mean(axis=0), **CLOSE)


def test_with_many_local_steps_clients_make_exact_proximal_steps() -> None:
    small = case("linear")
    person = small.person.at(1.0)
    method = sx.five_gcs(sx.plan(small.problem, person), p=1 / 2000)
    tau, x, u = method.settings["tau"], np.ones(DIM), np.zeros((N, DIM))
    for _ in range(3):
        x_hat = x - u.mean(axis=0) / (2 * tau)
        new = np.empty_like(u)
        for i, (A, b) in enumerate(examples("linear")):
            H = A.T @ A / len(b) + L2 * np.eye(DIM)
            y = np.linalg.solve(H + tau * np.eye(DIM), A.T @ b / len(b) + u[i] + tau * x_hat)
            new[i] = u[i] + tau * (x_hat - y)
        x, u = x_hat - (new - u).mean(axis=0) / (2 * tau), new
    course = follow(small.problem, person, method, rounds=3)
    np.testing.assert_allclose(course.snapshots[-1].x, x, rtol=1e-8)
    np.testing.assert_allclose(course.snapshots[-1].h, u, rtol=1e-8, atol=1e-8)


def test_with_one_gradient_a_round_it_is_optimistic_gradient_descent(logistic_case: Case) -> None:
    small = logistic_case
    method = sx.five_gcs(small.plan, p=1.0)
    gamma = 1 / (2 * method.settings["tau"])
    functions = small.mixed(ALPHA)
    y, before = np.ones(DIM), np.zeros(DIM)
    for _ in range(ROUNDS):
        slope = sum(f.gradient(y) for f in functions) / N
        x = y - gamma * (slope - before)
        y, before = x - gamma * slope, slope
    record = sx.run(small.problem, small.person, method, rounds=ROUNDS)
    np.testing.assert_allclose(record.models["global"], x, **CLOSE)


@pytest.mark.parametrize("alpha", [1.0, ALPHA], ids=["equal", "unequal"])
@pytest.mark.parametrize("cohort", [None, 1])
def test_it_reaches_the_flix_optimum(logistic_case: Case, alpha: Any, cohort: int | None) -> None:
    problem, person = logistic_case.problem, logistic_case.person.at(alpha)
    method = sx.five_gcs(sx.plan(problem, person), cohort=cohort)
    rounds = 100 if cohort is None else 300
    every = None if cohort is None else rounds
    record = sx.run(problem, person, method, rounds=rounds, cohort=cohort, every=every)
    assert record.metrics["objective_gap"][-1] < 1e-8


@pytest.mark.parametrize("cohort", range(1, N + 1))
def test_its_function_shrinks_as_it_is_said_on_average_over_all_cohorts(cohort: int) -> None:
    # quadratics whose spectra reach from mu to L, and random places to start from
    random = np.random.default_rng(cohort)
    for kappa in (3.0, 50.0, 3000.0):
        L = 10 ** random.uniform(-1, 1, N)
        mu = L / kappa ** random.uniform(0.2, 1, N)
        spectra = np.array([np.geomspace(mu[i], L[i], 6) for i in range(N)])
        tau = float(np.sqrt(N / cohort * L.max() * mu.mean() / 2))
        K, gamma = gradients_needed(float(L.max() / tau)), 1 / (2 * tau)
        rate = guarantee(L, mu, tau, cohort, 1 / K)
        m = np.mean(1 / ((L + mu) / (L * mu) + 10 / tau))
        W = 1.5 / (L + mu) + 1 / tau

        def phi(
            x: Point, u: Point, m: float = m, W: Point = W, gamma: float = gamma
        ) -> float:  # the optimum is at 0, and so are its dual variables
            dual = np.mean(W * np.sum(u**2, axis=1))
            return float((1 + 1.5 * gamma * m) * np.sum(x**2) + gamma * N / cohort * dual)

        for _ in range(20):
            x = random.normal(size=6)
            u = 10 ** random.uniform(-3, 1) * spectra * random.normal(size=(N, 6))
            x_hat = x - gamma * u.mean(axis=0)
            y = np.tile(x_hat, (N, 1))
            for _ in range(K - 1):
                y = y - (spectra * y - u + tau * (y - x_hat)) / (L[:, None] + tau)
            new, after = spectra * y, []
            for chosen in combinations(range(N), cohort):
                kept = u.copy()
                kept[list(chosen)] = new[list(chosen)]
                after.append(phi(x_hat - gamma * np.mean((new - u)[list(chosen)], axis=0), kept))
            assert np.mean(after) <= (1 - rate.zeta) ** K * phi(x, u)


@pytest.mark.parametrize("cohort", [1, 3])
def test_psi_stays_under_its_guarantee_with_sampled_clients(cohort: int) -> None:
    small = case("logistic")
    method = sx.five_gcs(small.plan, cohort=cohort)
    ratios = []
    for seed in range(15):
        record = sx.run(small.problem, small.person, method, rounds=20, cohort=cohort, seed=seed)
        assert record.summary["certificate"]["holds"]
        ratios.append(record.metrics["lyapunov"] / record.metrics["lyapunov_bound"])
    assert (np.mean(ratios, axis=0) <= 1).all()


def test_what_is_said_is_said_of_cohorts_that_are_large_enough(logistic_case: Case) -> None:
    small = logistic_case
    method = sx.five_gcs(small.plan, cohort=3)
    fewer, more = (
        sx.run(small.problem, small.person, method, rounds=2, cohort=c).summary for c in (2, 4)
    )
    assert fewer["certificate"] is None
    assert "for rounds of at least 3 clients; here 2" in fewer["no_certificate"]
    assert more["certificate"]["holds"]
    assert more["predicted_rounds"] > 0


def test_with_fewer_gradients_a_round_nothing_is_guaranteed(logistic_case: Case) -> None:
    plan = logistic_case.plan
    needed = sx.five_gcs(plan).p
    assert np.isfinite(sx.five_gcs(plan, p=needed).rate.zeta)
    assert np.isnan(sx.five_gcs(plan, p=2 * needed).rate.zeta)
    assert np.isnan(sx.five_gcs(plan, stepsize=1.01 * plan.gamma / ALPHA**2).rate.zeta)


def test_the_optimum_is_a_fixed_point_for_sampled_clients(logistic_case: Case) -> None:
    small = logistic_case
    (optimum,) = optima(small.problem, [small.person])
    method = sx.five_gcs(small.plan, cohort=2)
    stars = np.asarray(small.person.x_star)
    made = algorithm.run(
        method,
        [Client(a, g, x) for a, g, x in zip(ALPHA, method.gamma, stars, strict=True)],
        optimum.x,
        list(optimum.h),
        lambda i, r, point, k: small.functions[i].gradient(point),
        [Round(5, (0, 3)), Round(5, (2,))],
    )
    np.testing.assert_allclose(made.server.x, optimum.x, atol=1e-12)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"cohort": 0}, "cohort is 0; give a whole number of at least 1"),
        ({"cohort": N + 1}, f"cohort is {N + 1}; it must be at most {N}, the clients"),
        ({"tau": 0.0}, "tau is 0.0; give a finite number above 0"),
    ],
)
def test_bad_values_are_refused(logistic_case: Case, given: dict[str, Any], words: str) -> None:
    with pytest.raises(sx.ScafflixError, match=words):
        sx.five_gcs(logistic_case.plan, **given)
