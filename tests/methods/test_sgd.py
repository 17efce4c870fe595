from __future__ import annotations

import numpy as np
import pytest

import reference
import scafflix as sx
from cases import ALPHA, L2, Case, examples
from scafflix.gradients import Exact, Gradient, Minibatch, Noisy
from scafflix.simulate.planning import optima


def constants(case: Case, gradient: Gradient) -> tuple[float, float]:
    """A and C of the mean of the clients' estimates, from the stepsize and the noise of SGD."""
    method = sx.sgd(sx.plan(case.problem, case.person, gradient=gradient))
    step = (method.gamma / ALPHA**2)[0]
    return 1 / step, method.rate.zeta * method.rate.noise / (ALPHA.min() ** 2 * step**2)


def second_moments(case: Case, gradient: Gradient) -> tuple[np.ndarray, np.ndarray]:
    """E ||(1/n) sum_i alpha_i g_i||^2, by enumeration, and f~(x) - f~(x*), at many points x."""
    (optimum,) = optima(case.problem, [case.person])
    kind, n, stars = case.problem.model.name, case.problem.n, np.asarray(case.person.x_star)
    objective, random = reference.average(case.mixed(ALPHA)), np.random.default_rng(0)
    moments, gaps = [], []
    for distance in (1e-2, 0.3, 3.0, 30.0):
        for _ in range(6):
            x = np.asarray(optimum.x) + distance * random.normal(size=case.problem.shape)
            sigma = gradient.sigma if isinstance(gradient, Noisy) else 0.0
            variance = float(np.sum(ALPHA**2)) * sigma**2
            if isinstance(gradient, Minibatch):
                for i, (A, b) in enumerate(examples(kind)):
                    point = ALPHA[i] * x + (1 - ALPHA[i]) * stars[i]
                    mean = case.functions[i].gradient(point)
                    each = [
                        reference.FUNCTIONS[kind](A[j : j + 1], b[j : j + 1], L2).gradient(point)
                        for j in range(len(b))
                    ]
                    spread = np.mean([np.sum((g - mean) ** 2) for g in each])
                    variance += ALPHA[i] ** 2 * spread / gradient.size
            moments.append(np.sum(objective.gradient(x) ** 2) + variance / n**2)
            gaps.append(objective.value(x) - objective.value(optimum.x))
    return np.array(moments), np.array(gaps)


@pytest.mark.parametrize("gradient", [Exact(), Noisy(2.0), Minibatch(1), Minibatch(4)], ids=str)
def test_the_mean_of_estimates_satisfies_assumption_3(case: Case, gradient: Gradient) -> None:
    A, C = constants(case, gradient)
    moments, gaps = second_moments(case, gradient)
    assert (moments <= (1 + 1e-9) * (2 * A * gaps + C)).all()


def test_without_the_part_of_the_samples_assumption_3_would_not_hold(linear_case: Case) -> None:
    _, C = constants(linear_case, Minibatch(1))
    smoothness, _ = constants(linear_case, Exact())
    moments, gaps = second_moments(linear_case, Minibatch(1))
    assert (moments > 2 * smoothness * gaps + C).any()


def test_the_noise_of_equal_clients_falls_with_their_number() -> None:
    random = np.random.default_rng(0)
    part = (random.normal(size=(10, 3)), random.normal(size=10))
    noises = []
    for n in (2, 8):
        problem = sx.Problem(
            sx.data.from_clients(dict.fromkeys(range(n), part)), sx.models.linear(), 0.1
        )
        plan = sx.plan(problem, sx.personalize(problem, 1.0), gradient=Noisy(1.0))
        noises.append(sx.sgd(plan).rate.noise)
    assert noises[0] == pytest.approx(4 * noises[1])


@pytest.mark.parametrize("gradient", [Noisy(1.0), Minibatch(2)], ids=str)
def test_for_a_target_the_noise_is_at_most_half_of_it(case: Case, gradient: Gradient) -> None:
    epsilon = 1e-4
    plan = sx.plan(case.problem, case.person, gradient=gradient, epsilon=epsilon)
    rate = sx.sgd(plan).rate
    assert 0 < rate.noise <= (1 + 1e-12) * epsilon / 2
    assert rate.iterations(1.0, epsilon) is not None
