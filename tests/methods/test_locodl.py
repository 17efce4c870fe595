"""LoCoDL against the paper's lines in NumPy, its theorem, and i-Scaffnew with one more client."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
import pytest
from numpy.typing import NDArray

import reference
import scafflix as sx
from cases import ALPHA, DIM, ROUNDS, Case
from executions import schedule
from scafflix import algorithm
from scafflix.methods import Client, Method
from scafflix.methods.compressors import RandK, compressor_of
from scafflix.simulate.planning import optima
from scafflix.theory import Plan

Point = NDArray[np.float64]
RAND_K = "rand_k:0.34"  # 3 of 6 numbers
N = len(ALPHA)
pytestmark = pytest.mark.usefixtures("float64")


class Constants(NamedTuple):
    """What the paper's lines take, with a stepsize for each client."""

    s: Point
    sigma: float
    p: float
    rho: float
    omega: float

    @property
    def s_y(self) -> float:
        return float(1 / np.mean(1 / self.s))

    @property
    def w(self) -> Point:
        """The weights of the d_i in d; that of y, whose d is 0, is 1/2."""
        return 1 / self.s / (2 * np.sum(1 / self.s))


class Iterate(NamedTuple):
    x: Point  # [clients, numbers]
    y: Point
    u: Point  # [clients, numbers]
    v: Point


def first(constants: Constants, x0: Point) -> Iterate:
    """u_i = -(sigma/s_i) x and v = (sigma/s_y) x, with mean u_i + v = 0."""
    u = -constants.sigma / constants.s[:, None] * x0
    return Iterate(np.tile(x0, (len(u), 1)), x0, u, constants.sigma / constants.s_y * x0)


def step(gradients: Sequence[reference.Gradient], c: Constants, now: Iterate, who: Any) -> Iterate:
    """x_hat_i = x_i - s_i (grad phi_i(x_i) - u_i) and y_hat = y - s_y (grad g(y) - v)."""
    x = now.x.copy()
    for i in who:
        phi = gradients[i](x[i]) - c.sigma / c.s[i] * x[i]
        x[i] = x[i] - c.s[i] * (phi - now.u[i])
    y = now.y - c.s_y * (c.sigma / c.s_y * now.y - now.v)
    return now._replace(x=x, y=y)


def communicate(
    c: Constants, now: Iterate, compress: Callable[[int, Point], Point], who: Any
) -> Iterate:
    """d_i = C_i(x_hat_i - y_hat), d = sum_i w_i d_i, and the four lines after it; of a sample of
    clients, weights among themselves, and v advances by their share."""
    d_i = {i: compress(i, now.x[i] - now.y) for i in who}
    d = sum(c.w[i] * d_i[i] for i in who) / (2 * sum(c.w[i] for i in who))
    eta = c.p * c.rho / (1 + 2 * c.omega)
    x, u = now.x.copy(), now.u.copy()
    for i in who:
        x[i] = (1 - c.rho) * now.x[i] + c.rho * (now.y + d)
        u[i] = now.u[i] + eta / c.s[i] * (d - d_i[i])
    v = now.v + len(who) / len(x) * eta / c.s_y * d
    return Iterate(x, now.y + c.rho * d, u, v)


def constants_of(method: Method, alpha: Point) -> Constants:
    chosen = method.settings
    s = np.asarray(method.gamma) / alpha**2
    return Constants(s, chosen["sigma"], chosen["p"], chosen["rho"], chosen["omega"])


def clients_of(case: Case, method: Method) -> Client:
    counts = case.problem.federation.train.counts
    return Client(ALPHA, np.asarray(method.gamma), None, counts, len(ALPHA))


@pytest.mark.parametrize("cohort", [None, 3])
@pytest.mark.parametrize("compressor", [RAND_K, "natural"])
def test_the_simulator_follows_the_papers_lines(
    logistic_case: Case, compressor: str, cohort: int | None
) -> None:
    case, seed = logistic_case, 4
    method = sx.locodl(case.plan, compressor=compressor)
    record = sx.run(case.problem, case.person, method, rounds=ROUNDS, seed=seed, cohort=cohort)
    c, gradients = constants_of(method, ALPHA), [f.gradient for f in case.mixed(ALPHA)]
    now = first(c, np.ones(DIM))
    for K, who, key, *_ in schedule(method, clients_of(case, method), seed, ROUNDS, cohort):
        order = sorted(who)
        for _ in range(K):
            now = step(gradients, c, now, who)

        def compress(i: int, x: Point, key: Any = key, order: Any = order) -> Point:
            own = jax.random.fold_in(key, order.index(i))
            return compressor_of(compressor).compress(own, x)

        now = communicate(c, now, compress, who)
    np.testing.assert_allclose(record.models["global"], now.y, rtol=1e-10, atol=1e-10)
    assert np.abs(now.y - 1).max() > 1e-2


def test_without_compression_it_is_i_scaffnew_with_one_more_client(logistic_case: Case) -> None:
    case = logistic_case
    method = sx.locodl(case.plan, compressor="identity")
    c = constants_of(method, ALPHA)
    assert (c.rho, c.omega) == (1, 0)

    def phi(i: int) -> reference.Gradient:
        own = case.mixed(ALPHA)[i].gradient
        return lambda x: own(x) - c.sigma / c.s[i] * x

    gradients = [*(phi(i) for i in range(N)), lambda y: N * c.sigma / c.s_y * y]
    steps, x0 = [*c.s, c.s_y / N], np.ones(DIM)
    begun = first(c, x0)
    h0 = [*begun.u, N * begun.v]
    record = sx.run(case.problem, case.person, method, rounds=ROUNDS)
    drawn = record.metrics["local_steps"][1:]
    iterates = reference.i_scaffnew(gradients, steps, c.p, x0, h0, reference.coin(drawn))
    np.testing.assert_allclose(record.models["global"], iterates[-1].x[0], rtol=1e-10, atol=1e-11)


@pytest.mark.parametrize("alpha", [1.0, 0.3, ALPHA], ids=["one", "equal", "unequal"])
def test_with_rand_k_it_reaches_the_flix_optimum(logistic_case: Case, alpha: Any) -> None:
    problem, person = logistic_case.problem, logistic_case.person.at(alpha)
    method = sx.locodl(sx.plan(problem, person), compressor=RAND_K)
    gap = sx.run(problem, person, method, rounds=300).metrics["objective_gap"]
    assert gap[0] > 1e-2
    assert gap[-1] < 1e-12


def test_the_dual_variables_sum_to_zero(logistic_case: Case) -> None:
    case = logistic_case
    method = sx.locodl(case.plan, compressor=RAND_K)
    stars = np.asarray(case.person.x_star)
    clients = [Client(a, g, x) for a, g, x in zip(ALPHA, method.gamma, stars, strict=True)]
    made = algorithm.run(
        method,
        [client._replace(clients=N) for client in clients],
        np.ones(DIM),
        [np.zeros(DIM)] * N,
        lambda i, r, point, k: case.functions[i].gradient(point),
        schedule(method, clients_of(case, method), 1, ROUNDS),
    )
    c = constants_of(method, ALPHA)
    u = np.array([state.su for state in made.states]) / c.s[:, None]
    v = made.server.sv / c.s_y
    assert np.abs(u).max() > 0.1
    np.testing.assert_allclose(u.mean(axis=0) + v, 0, atol=1e-13)


@pytest.mark.parametrize("alpha", [np.ones(N), ALPHA], ids=["equal", "unequal"])
def test_psi_falls_at_the_rate_of_the_theorem(logistic_case: Case, alpha: Point) -> None:
    case, seeds, iterations = logistic_case, 60, 60
    person = case.person.at(alpha)
    plan: Plan = sx.plan(case.problem, person)
    (optimum,) = optima(case.problem, [person])
    method = sx.locodl(plan, compressor=RAND_K, omega=RandK(0.34).omega(DIM))
    c, gradients = constants_of(method, alpha), [f.gradient for f in case.mixed(alpha)]
    x = np.asarray(optimum.x)
    u = np.array([g(x) - c.sigma / s * x for g, s in zip(gradients, c.s, strict=True)])
    best = Iterate(np.tile(x, (N, 1)), x, u, c.sigma / c.s_y * x)
    np.testing.assert_allclose(best.u.mean(axis=0) + best.v, 0, atol=1e-9)
    dual = c.p**2 * c.rho / (1 + 2 * c.omega)

    def psi(now: Iterate) -> float:
        points = np.mean(np.sum((now.x - best.x) ** 2, 1) / c.s)
        points += np.sum((now.y - best.y) ** 2) / c.s_y
        duals = np.mean(np.sum((now.u - best.u) ** 2, 1) * c.s)
        duals += np.sum((now.v - best.v) ** 2) * c.s_y
        return float(points + duals / dual)

    bound = max((1 - c.sigma) ** 2, 1 - dual)
    assert bound == pytest.approx((1 - c.sigma) ** 2)  # by the choice of p, where it is below 1
    ratios = np.zeros((seeds, iterations))
    for seed in range(seeds):
        random, now = np.random.default_rng(seed), first(c, np.ones(DIM))
        start = psi(now)

        def compress(i: int, x: Point, random: Any = random) -> Point:
            kept = random.permutation(DIM) < 3
            return np.where(kept, 2 * x, 0)

        for t in range(iterations):
            now = step(gradients, c, now, range(N))
            if random.random() < c.p:
                now = communicate(c, now, compress, range(N))
            ratios[seed, t] = psi(now) / (bound ** (t + 1) * start)
    mean, error = ratios.mean(axis=0), ratios.std(axis=0) / np.sqrt(seeds)
    assert (mean <= 1 + 4 * error).all()


@pytest.mark.parametrize("compressor", ["identity", RAND_K])
def test_the_psi_of_theorem_1_stays_under_its_guarantee(
    logistic_case: Case, compressor: str
) -> None:
    case, seeds = logistic_case, 30
    method = sx.locodl(case.plan, compressor=compressor)
    runs = [sx.Run(case.person, method, seed) for seed in range(seeds)]
    records = sx.sweep(case.problem, runs, rounds=60)
    ratios = [one.metrics["lyapunov"] / one.metrics["lyapunov_bound"] for one in records]
    mean, error = np.mean(ratios, axis=0), np.std(ratios, axis=0) / np.sqrt(seeds)
    assert (mean <= 1 + 4 * error).all()
    assert records[0].metrics["lyapunov"][-1] < 1e-3 * records[0].metrics["lyapunov"][0]


@pytest.mark.parametrize("given", [{"rho": 1.0}, {"sigma": 0.9}, {"stepsize": 100.0}])
def test_outside_its_theory_nothing_is_guaranteed(
    logistic_case: Case, given: dict[str, Any]
) -> None:
    assert np.isnan(sx.locodl(logistic_case.plan, compressor=RAND_K, **given).rate.zeta)


def test_the_bits_are_those_of_what_is_sent(logistic_case: Case) -> None:
    case = logistic_case
    for compressor, up in ((RAND_K, 3 * 64), ("natural", 12 * DIM)):
        method = sx.locodl(case.plan, compressor=compressor)
        metrics = sx.run(case.problem, case.person, method, rounds=ROUNDS, seed=4).metrics
        assert metrics["bits_up"][-1] == ROUNDS * N * up
        assert metrics["bits_down"][-1] == ROUNDS * N * 2 * 64 * DIM  # y and v


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"omega": -1.0}, "omega is -1.0; give a finite number of at least 0"),
        ({"sigma": 0.0}, "sigma is 0.0; give a finite number above 0 and below 1"),
        ({"sigma": 1.0}, "sigma is 1.0"),
        ({"rho": 0.0}, "rho is 0; it must be above 0 and at most 1"),
        ({"rho": 1.5}, "rho is 1.5; it must be above 0"),
        ({"compressor": "best"}, "compressor is 'best'; it must be identity"),
        ({"compressor": "rand_k:3"}, "The omega of rand_k:3 depends on the size of the model"),
    ],
)
def test_bad_values_are_refused(logistic_case: Case, given: dict[str, Any], words: str) -> None:
    with pytest.raises(sx.ScafflixError, match=words):
        sx.locodl(logistic_case.plan, **given)


def test_more_numbers_than_the_model_has_are_refused_before_the_first_round(
    logistic_case: Case,
) -> None:
    case = logistic_case
    method = sx.locodl(case.plan, compressor="rand_k:7", omega=1.0)
    with pytest.raises(sx.ScafflixError, match="k is 7; it must be at most 6"):
        sx.run(case.problem, case.person, method, rounds=2)
