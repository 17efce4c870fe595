from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import reference
import scafflix as sx
from cases import ALPHA, ROUNDS, Case
from scafflix.gradients import Exact, Gradient, Minibatch, Noisy
from scafflix.methods import METHODS
from scafflix.problems.constants import Constants
from scafflix.simulate.planning import optima
from scafflix.theory import NO_RATE, Plan, Rate, advise, certify, rounding_floor, theorem

Floats = NDArray[np.float64]

# ---------------------------------------------------------------- Theorem 1, by Monte Carlo

SEEDS = 250
MIX = np.array([1.0, 0.6, 0.3, 0.8])
ROWS, FEATURES, STRENGTH = 6, 3, 0.05
NOISY = Noisy(4.0)
LAST = {Exact(): 60, NOISY: 60, Minibatch(2): 150}  # iterations, until noise is all that is left
ESTIMATES = list(LAST)


def times(estimate: Gradient) -> tuple[int, ...]:
    return (0, 1, 3, 10, 30, LAST[estimate])


@cache
def parts() -> list[tuple[Floats, Floats]]:
    """Least squares with condition numbers of about 10, where the theorem is not far from
    equality, and with optima and smoothness that differ between clients."""
    random = np.random.default_rng(3)
    found = []
    for i in range(4):
        axes = np.linalg.qr(random.normal(size=(ROWS, FEATURES)))[0] * math.sqrt(ROWS)
        A = axes * np.array([1.0, 2.0, 3.2]) * (1 + 0.5 * i)
        b = A @ random.normal(size=FEATURES) * 2 + 4 * random.normal(size=ROWS)
        found.append((A, b))
    return found


@cache
def tiny() -> tuple[sx.Problem, sx.Personalization]:
    federation = sx.data.from_clients(dict(enumerate(parts())))
    problem = sx.Problem(federation, sx.models.linear(), STRENGTH)
    return problem, sx.personalize(problem, MIX)


@cache
def tiny_plan(estimate: Gradient) -> Plan:
    return sx.plan(*tiny(), gradient=estimate)


def estimator(
    estimate: Gradient, i: int, random: np.random.Generator
) -> Callable[[Floats], Floats]:
    """The reference's own stochastic gradients."""
    A, b = parts()[i]
    exact = reference.linear(A, b, STRENGTH).gradient
    if isinstance(estimate, Noisy):
        scale = estimate.sigma / math.sqrt(FEATURES)
        return lambda x: exact(x) + scale * random.normal(size=FEATURES)
    if isinstance(estimate, Minibatch):

        def sampled(x: Floats) -> Floats:
            rows = random.integers(0, ROWS, estimate.size)
            return reference.linear(A[rows], b[rows], STRENGTH).gradient(x)

        return sampled
    return exact


@cache
def psi_at_fixed_times(estimate: Gradient) -> Floats:
    """Psi^t `[seeds, times]` of the reference of Algorithm 1 with a coin of its own."""
    problem, person = tiny()
    plan, (optimum,) = tiny_plan(estimate), optima(problem, [person])
    stars, n = np.asarray(person.x_star), problem.n
    last, psi = LAST[estimate], []
    for seed in range(SEEDS):
        random = np.random.default_rng(seed)
        iterates = reference.scafflix(
            [estimator(estimate, i, random) for i in range(n)],
            stars,
            MIX,
            plan.gamma,
            plan.p,
            np.ones(FEATURES),
            np.zeros((n, FEATURES)),
            (random.random(last) < plan.p).astype(int),
        )
        psi.append(
            [
                reference.lyapunov(iterates[t], MIX, plan.gamma, plan.p, optimum.x, optimum.h)
                for t in times(estimate)
            ]
        )
    return np.array(psi)


def refuted_at(estimate: Gradient, rate: Rate) -> list[int]:
    """Times at which the mean is above the bound by more than three standard errors."""
    psi = psi_at_fixed_times(estimate)
    mean, error = psi.mean(axis=0), psi.std(axis=0) / math.sqrt(len(psi))
    bounds = [rate.bound(t, psi[0, 0]) * (1 + 1e-12) for t in times(estimate)]
    above = mean - 3 * error > bounds
    return [t for t, refuted in zip(times(estimate), above, strict=True) if refuted]


@pytest.mark.parametrize("estimate", ESTIMATES, ids=str)
def test_psi_stays_under_the_theorems_bound_on_average(estimate: Gradient) -> None:
    assert refuted_at(estimate, tiny_plan(estimate).rate) == []


def test_a_rate_three_times_too_fast_is_refuted() -> None:
    rate = tiny_plan(Exact()).rate
    assert refuted_at(Exact(), rate._replace(zeta=3 * rate.zeta))


def test_a_rate_with_p_instead_of_its_square_is_refuted() -> None:
    plan = tiny_plan(Exact())
    assert refuted_at(Exact(), plan.rate._replace(zeta=plan.p))


@pytest.mark.parametrize("estimate", ESTIMATES[1:], ids=str)
def test_a_bound_without_the_noise_is_refuted(estimate: Gradient) -> None:
    rate = tiny_plan(estimate).rate._replace(noise=0.0)
    assert LAST[estimate] in refuted_at(estimate, rate)


def test_a_bound_with_a_tenth_of_the_noise_is_refuted() -> None:
    rate = tiny_plan(NOISY).rate
    assert LAST[NOISY] in refuted_at(NOISY, rate._replace(noise=rate.noise / 10))


@cache
def records(estimate: Gradient, name: str) -> list[sx.Record]:
    """The package's runs over many seeds, side by side."""
    problem, person = tiny()
    method = METHODS[name](tiny_plan(estimate))
    runs = [sx.Run(person, method, seed) for seed in range(SEEDS)]
    rounds = 400 if isinstance(estimate, Minibatch) else 60  # its stepsizes are small
    return sx.sweep(problem, runs, rounds=rounds, scores=False)


def refuted_after(estimate: Gradient, name: str, rate: Rate) -> list[int]:
    """Rounds after which the mean refutes a rate by more than three standard errors.

    A round ends at a stopping time tau. One iteration makes of Psi at most (1 - zeta) Psi plus
    zeta noise on average, so that (Psi^t - noise) / (1 - zeta)^t is a supermartingale, and
    E (Psi^tau - noise) / (1 - zeta)^tau + noise <= Psi^0.
    """
    made = records(estimate, name)
    psi = np.array([record.metrics["lyapunov"] for record in made])
    tau = np.array([record.metrics["iterations"] for record in made])
    value = (psi - rate.noise) / (1 - rate.zeta) ** tau + rate.noise
    mean, error = value.mean(axis=0), value.std(axis=0) / math.sqrt(len(made))
    return [r for r in range(1, psi.shape[1]) if mean[r] - 3 * error[r] > rate.factor * psi[0, 0]]


@pytest.mark.parametrize("name", ["scafflix", "sgd"])
@pytest.mark.parametrize("estimate", ESTIMATES, ids=str)
def test_runs_stay_under_their_bound_on_average(estimate: Gradient, name: str) -> None:
    rate = METHODS[name](tiny_plan(estimate)).rate
    assert refuted_after(estimate, name, rate) == []


@pytest.mark.parametrize("name", ["scafflix", "sgd"])
@pytest.mark.parametrize("estimate", ESTIMATES[1:], ids=str)
def test_a_bound_on_runs_without_the_noise_is_refuted(estimate: Gradient, name: str) -> None:
    rate = METHODS[name](tiny_plan(estimate)).rate._replace(noise=0.0)
    assert refuted_after(estimate, name, rate)


@pytest.mark.parametrize("name", ["scafflix", "sgd"])
def test_a_rate_of_runs_three_times_too_fast_is_refuted(name: str) -> None:
    rate = METHODS[name](tiny_plan(Exact())).rate
    assert refuted_after(Exact(), name, rate._replace(zeta=3 * rate.zeta))


# ---------------------------------------------------------------- stepsizes, p and the rate


def test_the_plan_for_exact_gradients_is_corollary_1(case: Case) -> None:
    plan, constants = case.plan, case.problem.constants
    kappa = (constants.L / constants.mu).max()
    np.testing.assert_allclose(plan.gamma, 1 / constants.L, rtol=1e-14)
    assert plan.p == pytest.approx(1 / math.sqrt(kappa), rel=1e-14)
    assert plan.rate[:3] == pytest.approx((1 / kappa, 1.0, 0.0), rel=1e-14)


def random_constants(seed: int, n: int = 6) -> tuple[Constants, Floats, Floats]:
    """Constants with A_i >= L_i >= mu_i, and C_i of which one is 0."""
    random = np.random.default_rng(seed)
    mu = random.uniform(0.1, 1, n)
    L = mu * random.uniform(1, 50, n)
    C = random.uniform(0, 5, n) * (np.arange(n) > 0)
    return Constants(L, mu, 2 * L), L * random.uniform(1, 3, n), C


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("epsilon", [1e-3, 1.0, 1e3])
def test_stepsizes_for_a_target_are_those_of_corollary_2(seed: int, epsilon: float) -> None:
    constants, A, C = random_constants(seed)
    plan = advise(np.ones(6), constants, Noisy(1.0), A, C, epsilon)
    expected = [
        min(1 / A[i], epsilon * constants.mu.min() / (2 * C[i])) if C[i] > 0 else 1 / A[i]
        for i in range(6)
    ]
    np.testing.assert_allclose(plan.gamma, expected, rtol=1e-14)
    assert plan.p == pytest.approx(math.sqrt((plan.gamma * constants.mu).min()), rel=1e-14)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("epsilon", [1e-3, 1.0, 1e3])
def test_the_noise_of_a_plan_for_a_target_is_at_most_half_of_it(seed: int, epsilon: float) -> None:
    constants, A, C = random_constants(seed)
    plan = advise(np.ones(6), constants, Noisy(1.0), A, C, epsilon)
    assert 0 < plan.rate.noise <= (1 + 1e-12) * epsilon / 2


def test_a_plan_for_a_target_predicts_when_it_is_reached() -> None:
    problem, person = tiny()
    plan = sx.plan(problem, person, gradient=NOISY, epsilon=1e-3)
    t = plan.rate.iterations(psi0=10.0, epsilon=1e-3)
    assert t is not None
    assert plan.rate.bound(t, 10.0) <= 1e-3 < plan.rate.bound(t - 1, 10.0)


def test_a_plan_for_minibatches_advises_smaller_stepsizes(case: Case) -> None:
    plans = [
        sx.plan(case.problem, case.person, gradient=gradient)
        for gradient in (Minibatch(1), Minibatch(4), Exact())
    ]
    assert (plans[0].gamma < plans[1].gamma).all()
    assert (plans[1].gamma < plans[2].gamma).all()
    assert [plan.exact for plan in plans] == [False, False, True]


def test_zeta_is_the_smaller_of_its_two_terms() -> None:
    gamma, mu, A = np.array([0.1, 0.2]), np.array([1.0, 0.3]), np.array([10.0, 5.0])
    none = np.zeros(2)
    assert theorem(gamma, 0.5, mu, A, none).zeta == pytest.approx(0.06)
    assert theorem(gamma, 0.2, mu, A, none).zeta == pytest.approx(0.04)


def test_the_noise_is_that_of_the_theorem() -> None:
    gamma, mu, A, C = (np.array(v) for v in ([0.1, 0.2], [1.0, 0.3], [10.0, 5.0], [2.0, 7.0]))
    expected = 0.1 / 0.04 * (0.1 * 2 + 0.2 * 7) / 2
    assert theorem(gamma, 0.2, mu, A, C).noise == pytest.approx(expected)


def test_stepsizes_beyond_1_over_a_have_no_rate() -> None:
    mu, A = np.ones(2), np.array([10.0, 5.0])
    assert math.isnan(theorem(np.array([0.1, 0.21]), 0.5, mu, A, np.zeros(2)).zeta)
    assert not math.isnan(theorem(1 / A, 0.5, mu, A, np.zeros(2)).zeta)


def test_the_first_iteration_under_the_target_is_found() -> None:
    random = np.random.default_rng(0)
    for _ in range(300):
        rate = Rate(random.uniform(1e-4, 0.99), random.uniform(1, 30), random.uniform(0, 1e-3))
        psi0, epsilon = 10 ** random.uniform(-2, 4), 10 ** random.uniform(-2.9, 0)
        t = rate.iterations(psi0, epsilon)
        assert t is not None
        assert rate.bound(t, psi0) <= epsilon * (1 + 1e-12)
        assert t == 0 or rate.bound(t - 1, psi0) > epsilon * (1 - 1e-12)


@pytest.mark.parametrize(
    ("rate", "t"),
    [(Rate(1.0), 1), (Rate(0.5, noise=0.1), None), (Rate(0.0), None), (NO_RATE, None)],
)
def test_iterations_at_the_edges(rate: Rate, t: int | None) -> None:
    assert rate.iterations(psi0=1.0, epsilon=0.1) == t


@pytest.mark.parametrize("epsilon", [0.0, -1.0, float("nan")])
def test_a_target_that_is_not_above_0_is_refused(epsilon: float) -> None:
    with pytest.raises(sx.ScafflixError, match=f"epsilon is {epsilon}"):
        sx.plan(*tiny(), epsilon=epsilon)


def test_the_prediction_of_a_run_is_the_theorems(logistic_case: Case) -> None:
    record = sx.run(
        logistic_case.problem,
        logistic_case.person,
        sx.scafflix(logistic_case.plan),
        rounds=ROUNDS,
        epsilon=1e-4,
    )
    zeta, p = logistic_case.plan.rate.zeta, logistic_case.plan.p
    psi = record.metrics["lyapunov"][0]
    t = math.ceil(math.log(psi / 1e-4) / -math.log(1 - zeta))
    assert record.summary["predicted_rounds"] == math.ceil(p * t)


def test_individual_stepsizes_predict_fewer_rounds_than_a_common_one(case: Case) -> None:
    zetas = [make(case.plan).rate.zeta for make in (sx.scafflix, sx.scaffnew)]
    assert zetas[0] > zetas[1]


# ---------------------------------------------------------------- the certificate


def honest(case: Case, name: str, **options: Any) -> dict[str, Any]:
    method = METHODS[name](case.plan)
    record = sx.run(case.problem, case.person, method, rounds=ROUNDS, **options)
    certificate: dict[str, Any] = record.summary["certificate"]
    return certificate


@pytest.mark.parametrize(
    "name", ["scafflix", "i_scaffnew", "scaffnew", "gradskip", "gd", "sgd", "nesterov"]
)
def test_the_certificate_of_an_honest_run_holds(case: Case, name: str) -> None:
    certificate = honest(case, name)
    assert certificate["holds"]
    assert 0 < certificate["worst_ratio"] <= 1
    assert certificate["chance"] == 1
    assert certificate["rounds_checked"] == ROUNDS


def test_the_certificate_holds_from_a_warm_start(case: Case) -> None:
    assert honest(case, "scafflix", h0="warm")["holds"]


def test_the_certificate_speaks_only_of_psi_above_rounding() -> None:
    record = sx.run(*tiny(), sx.scafflix(tiny_plan(Exact())), rounds=400)
    certificate = record.summary["certificate"]
    assert record.metrics["lyapunov"][-1] > record.metrics["lyapunov_bound"][-1]  # by rounding
    assert certificate["rounds_checked"] < 400
    assert certificate["holds"]


def test_a_method_without_a_guarantee_has_no_certificate(logistic_case: Case) -> None:
    assert honest(logistic_case, "fedavg") is None


def test_chance_is_left_out_for_stochastic_gradients() -> None:
    assert records(NOISY, "scafflix")[0].summary["certificate"]["chance"] is None


def test_the_certificate_flags_an_exaggerated_rate() -> None:
    method = sx.scafflix(tiny_plan(Exact()))
    boast = replace(method, rate=method.rate._replace(zeta=4 * method.rate.zeta))
    certificate = sx.run(*tiny(), boast, rounds=60).summary["certificate"]
    assert not certificate["holds"]
    assert certificate["chance"] < 0.01


def test_the_certificate_flags_stepsizes_twice_too_large() -> None:
    # at 2/L_i the steepest direction does not contract; the record claims the rate of 1/L_i
    plan = tiny_plan(Exact())
    method = sx.scafflix(plan, stepsize=2 * plan.gamma, p=plan.p)
    pretender = replace(method, rate=plan.rate, limit=method.gamma)
    certificate = sx.run(*tiny(), pretender, rounds=60).summary["certificate"]
    assert not certificate["holds"]
    assert certificate["chance"] < 0.01


def test_stepsizes_beyond_theory_have_no_certificate(linear_case: Case) -> None:
    method = sx.scafflix(linear_case.plan, stepsize=1.5 * linear_case.plan.gamma)
    with pytest.warns(sx.ScafflixWarning):
        record = sx.run(linear_case.problem, linear_case.person, method, rounds=ROUNDS)
    assert record.summary["certificate"] is None
    assert np.isnan(record.metrics["lyapunov_bound"]).all()


def test_rounds_that_nobody_looked_at_are_passed_over() -> None:
    psi = np.array([1.0, np.nan, 0.9, np.nan, 0.1])
    certificate = certify(psi, np.array([1.0, 0.8, 0.6, 0.5, 0.4]), 0.0, exact=True)
    assert certificate is not None
    assert (certificate.worst_round, certificate.rounds_checked) == (2, 2)
    assert certificate.worst_ratio == pytest.approx(1.5)


def test_the_worst_round_is_named_from_1_on() -> None:
    certificate = certify(
        np.array([1.0, 0.5, 0.9, 0.1]), np.array([1.0, 1.0, 0.6, 0.5]), 0.0, exact=True
    )
    assert certificate is not None
    assert (certificate.worst_round, certificate.holds) == (2, False)
    assert certificate.worst_ratio == pytest.approx(1.5)
    assert certificate.chance == pytest.approx(2 / 3)


def test_what_is_below_rounding_is_not_held_against_a_run() -> None:
    psi, bound = np.array([1.0, 0.5, 1e-30]), np.array([1.0, 1.0, 1e-40])
    certificate = certify(psi, bound, floor=1e-28, exact=True)
    assert certificate is not None
    assert (certificate.holds, certificate.rounds_checked) == (True, 1)


def test_a_round_that_reaches_the_solution_in_one_step_is_not_held_against_a_run() -> None:
    psi, bound = np.array([0.75, 2e-33, 7e-66]), np.array([0.75, 0.0, 0.0])
    certificate = certify(psi, bound, floor=0.0, exact=True)
    assert certificate is not None
    assert (certificate.holds, certificate.rounds_checked) == (True, 0)


def test_a_bound_of_zero_that_psi_does_not_reach_is_broken() -> None:
    certificate = certify(np.array([0.75, 1e-9]), np.array([0.75, 0.0]), floor=0.0, exact=True)
    assert certificate is not None
    assert (certificate.holds, certificate.chance) == (False, 0.0)


def test_clients_whose_features_are_all_zero_keep_the_theorem() -> None:
    parts = {str(i): (np.zeros((4, 3)), [0, 1, 0, 1]) for i in range(3)}
    problem = sx.Problem(sx.data.from_clients(parts), sx.models.logistic(), l2=0.1)
    person = sx.personalize(problem, 0.5)
    record = sx.run(problem, person, sx.scafflix(sx.plan(problem, person)), rounds=5)
    assert record.summary["final_gap"] == 0
    assert record.summary["certificate"]["holds"]


def test_the_rounding_floor_is_tiny_and_grows_with_the_solution() -> None:
    x, h, gamma = np.ones((2, 3)), np.ones((2, 3)), np.ones(2)
    floor = rounding_floor(x, h, gamma, 0.1 / gamma, 0.5)
    assert 0 < floor < 1e-22
    assert rounding_floor(10 * x, 10 * h, gamma, 0.1 / gamma, 0.5) == pytest.approx(100 * floor)


def test_psi_at_the_start_is_that_of_the_paper(case: Case) -> None:
    record = sx.run(case.problem, case.person, sx.scafflix(case.plan), rounds=ROUNDS)
    (optimum,) = optima(case.problem, [case.person])
    gamma, n = case.plan.gamma, case.problem.n
    stars = np.asarray(case.person.x_star)
    first = second = 0.0
    for i, f in enumerate(case.functions):
        start = ALPHA[i] * np.ones(case.problem.shape) + (1 - ALPHA[i]) * stars[i]
        optimal = ALPHA[i] * optimum.x + (1 - ALPHA[i]) * stars[i]
        first += gamma.min() / gamma[i] * np.sum((start - optimal) ** 2) / n
        second += gamma[i] * np.sum(f.gradient(optimal) ** 2) / n
    expected = first + gamma.min() / case.plan.p**2 * second
    assert record.metrics["lyapunov"][0] == pytest.approx(expected, rel=1e-9)
