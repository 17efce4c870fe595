"""Epsilon against computations that share nothing with the library."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import integrate, optimize, stats

from scafflix.core.errors import ScafflixError
from scafflix.privacy import (
    Limit,
    epsilon_of_batches,
    epsilon_of_cohorts,
    epsilon_of_gaussians,
    least_noise,
)
from scafflix.privacy.terms import checked_release


def delta_of_gaussian(z: float, epsilon: float) -> float:
    """sup_S P(S) - e^epsilon Q(S) of N(1, z^2) and N(0, z^2), whose likelihood ratio rises."""
    edge = epsilon * z**2 + 0.5
    return float(stats.norm.sf(edge, 1, z) - math.exp(epsilon) * stats.norm.sf(edge, 0, z))


def epsilon_of_gaussian(z: float, delta: float) -> float:
    return float(optimize.brentq(lambda e: delta_of_gaussian(z, e) - delta, 0, 200))


@pytest.mark.parametrize(("z", "delta"), [(0.7, 1e-3), (1.0, 1e-5), (5.0, 1e-5), (20.0, 1e-2)])
def test_one_gaussian_mechanism_is_the_analytic_one(z: float, delta: float) -> None:
    assert epsilon_of_gaussians(1 / z**2, delta) == pytest.approx(
        epsilon_of_gaussian(z, delta), rel=1e-6
    )


def test_releases_one_after_another_are_one_with_the_root_of_their_number() -> None:
    assert epsilon_of_gaussians(50 / 4.0**2, 1e-5) == pytest.approx(
        epsilon_of_gaussian(4.0 / math.sqrt(50), 1e-5), rel=1e-6
    )
    assert epsilon_of_gaussians(0.0, 1e-5) == 0
    assert epsilon_of_gaussians(math.inf, 1e-5) == math.inf


def delta_of_sampled(q: float, z: float, epsilon: float) -> float:
    """The worse of the two directions for one step on Poisson samples, by quadrature."""

    def mixture(x: float) -> float:
        return float((1 - q) * stats.norm.pdf(x, 0, z) + q * stats.norm.pdf(x, 1, z))

    def alone(x: float) -> float:
        return float(stats.norm.pdf(x, 0, z))

    def excess(x: float, sign: int) -> float:
        pair = (mixture(x), alone(x))[::sign]
        return max(0.0, pair[0] - math.exp(epsilon) * pair[1])

    found = [integrate.quad(excess, -12, 13, (sign,), limit=400)[0] for sign in (1, -1)]
    return max(found)


@pytest.mark.parametrize(("q", "z"), [(0.1, 1.0), (0.3, 2.0)])
def test_a_sampled_step_has_at_most_the_epsilon_said(q: float, z: float) -> None:
    delta = 1e-4
    said = epsilon_of_batches(q, z, 1, delta)
    assert delta_of_sampled(q, z, said) <= delta
    assert said < epsilon_of_gaussians(1 / z**2, delta)  # sampling helps


def test_more_steps_cost_more_and_more_noise_less() -> None:
    for of in (
        lambda z, t: epsilon_of_gaussians(t / z**2, 1e-5),
        lambda z, t: epsilon_of_batches(0.05, z, t, 1e-5),
        lambda z, t: epsilon_of_cohorts(1000, 20, z, t, 1e-5),
    ):
        assert of(2.0, 10) < of(2.0, 40) < of(1.0, 40)
    assert epsilon_of_batches(0.01, 1.0, 100, 1e-5) < epsilon_of_batches(0.1, 1.0, 100, 1e-5)
    assert epsilon_of_batches(1.0, 1.0, 9, 1e-5) == epsilon_of_gaussians(9.0, 1e-5)


def delta_of_replaced(n: int, m: int, z: float, epsilon: float) -> float:
    """A lower bound for one round without replacement: one client at +1 or at -1, all others at -1
    (or +1), the sum plus noise; whoever does not know the cohort sees a mixture."""
    q, centre = m / n, -m  # all at -1
    xs = np.linspace(centre - 12 * z, centre + 2 + 12 * z, 200_001)
    with_it = (1 - q) * stats.norm.pdf(xs, centre, z) + q * stats.norm.pdf(xs, centre + 2, z)
    without = stats.norm.pdf(xs, centre, z)
    step = xs[1] - xs[0]
    pairs = ((with_it, without), (without, with_it))
    return max(float(np.maximum(0, p - math.exp(epsilon) * r).sum() * step) for p, r in pairs)


def test_a_round_of_some_clients_has_at_most_the_epsilon_said() -> None:
    said = epsilon_of_cohorts(100, 10, 2.0, 1, 1e-4)
    assert delta_of_replaced(100, 10, 2.0, said) <= 1e-4
    assert delta_of_replaced(100, 10, 2.0, 0.3 * said) > 1e-4  # and it is not said for nothing


def test_everybody_in_every_round_is_no_sampling() -> None:
    assert epsilon_of_cohorts(10, 10, 5.0, 1, 1e-5) == math.inf


def test_the_least_noise_is_within_the_budget_and_hardly_less_is_not() -> None:
    def epsilon(z: float) -> float:
        return epsilon_of_gaussians(50 / z**2, 1e-5)

    z = least_noise(epsilon, 1.0)
    assert epsilon(z) <= 1.0 < epsilon(0.999 * z)


@pytest.mark.parametrize("delta", [0.0, 1.0, -0.5, 2.0])
def test_delta_must_be_a_probability(delta: float) -> None:
    with pytest.raises(ScafflixError, match="delta is"):
        Limit(delta)


def test_bad_numbers_are_refused() -> None:
    with pytest.raises(ScafflixError, match="budget is -1"):
        Limit(None, -1.0)
    with pytest.raises(ScafflixError, match="noise but no clip"):
        checked_release(np.inf, 1.0)
    with pytest.raises(ScafflixError, match="clip is 0"):
        checked_release(0.0, 1.0)
    with pytest.raises(ScafflixError, match="noise_multiplier is -1"):
        checked_release(1.0, -1.0)
