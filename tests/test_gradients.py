"""Assumption 3, E ||g_i - grad f_i(x~_i*)||^2 <= 2 A_i D_{f_i}(x~_i, x~_i*) + C_i, and what
goes with it. The left sides are worked out by the reference."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

import reference
import scafflix as sx
from cases import L2, SIZES, Case, examples
from scafflix.core.vector import Vector
from scafflix.gradients import Exact, Gradient, Minibatch, Noisy, gradient
from scafflix.problems.losses import Losses
from scafflix.simulate.planning import optima

pytestmark = pytest.mark.usefixtures("float64")

N = len(SIZES)
SIGMA = 0.7
ESTIMATES = [Exact(), Noisy(SIGMA), Minibatch(1), Minibatch(4)]


def optimal_mixtures(case: Case) -> NDArray[np.float64]:
    (optimum,) = optima(case.problem, [case.person])
    return np.asarray(case.person.mix(optimum.x))


def constants(case: Case, estimate: Gradient) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    return estimate.expected_smoothness(
        case.problem, case.problem.constants, lambda: jnp.asarray(optimal_mixtures(case))
    )


def single(case: Case, i: int, x: NDArray[np.float64]) -> list[NDArray[np.float64]]:
    """The gradients of client i's examples."""
    kind = case.problem.model.name
    A, b = examples(kind)[i]
    function = reference.FUNCTIONS[kind]
    return [function(A[j : j + 1], b[j : j + 1], L2).gradient(x) for j in range(len(b))]


def variance(case: Case, estimate: Gradient, i: int, x: NDArray[np.float64]) -> float:
    """E ||g_i - grad f_i(x)||^2, by enumeration."""
    if isinstance(estimate, Noisy):
        return estimate.sigma**2
    if isinstance(estimate, Minibatch):
        each, mean = single(case, i, x), case.functions[i].gradient(x)
        return float(np.mean([np.sum((g - mean) ** 2) for g in each])) / estimate.size
    return 0.0


def directions(case: Case, i: int) -> list[NDArray[np.float64]]:
    """Random ones, and the one of largest curvature."""
    random = np.random.default_rng(i)
    shape = case.problem.shape
    top = np.linalg.svd(examples(case.problem.model.name)[i][0])[2][0]
    steep = np.multiply.outer(top, np.ones(shape[1:]) - 2 * (np.arange(np.prod(shape[1:])) == 0))
    return [random.normal(size=shape) for _ in range(8)] + [steep.reshape(shape)]


def excess(case: Case, estimate: Gradient) -> list[float]:
    """Left side over right side of Assumption 3, for all clients near and far from x~_i*."""
    A, C = constants(case, estimate)
    ratios = []
    for i, (f, optimal) in enumerate(zip(case.functions, optimal_mixtures(case), strict=True)):
        h = f.gradient(optimal)
        for direction in directions(case, i):
            for distance in (1e-2, 0.3, 3.0):
                x = optimal + distance * direction
                left = np.sum((f.gradient(x) - h) ** 2) + variance(case, estimate, i, x)
                divergence = f.value(x) - f.value(optimal) - np.vdot(h, x - optimal)
                ratios.append(left / (2 * A[i] * divergence + C[i]))
    return ratios


@pytest.mark.parametrize("estimate", ESTIMATES, ids=str)
def test_assumption_3_holds_at_random_points(case: Case, estimate: Gradient) -> None:
    assert max(excess(case, estimate)) <= 1 + 1e-9


def test_assumption_3_holds_with_equality_for_exact_gradients_of_least_squares(
    linear_case: Case,
) -> None:
    assert max(excess(linear_case, Exact())) == pytest.approx(1, rel=1e-9)


@pytest.mark.parametrize("estimate", [Noisy(SIGMA), Minibatch(1), Minibatch(4)], ids=str)
def test_the_constant_c_is_at_most_twice_the_variance_at_the_optimum(
    case: Case, estimate: Gradient
) -> None:
    _, C = constants(case, estimate)
    for i, optimal in enumerate(optimal_mixtures(case)):
        exact = variance(case, estimate, i, optimal)
        factor = 1 if isinstance(estimate, Noisy) else 2
        assert C[i] == pytest.approx(factor * exact, rel=1e-10)


def test_large_batches_tend_to_the_exact_gradient(case: Case) -> None:
    A, C = constants(case, Minibatch(10**9))
    np.testing.assert_allclose(A, case.problem.constants.L, rtol=1e-6)
    np.testing.assert_allclose(C, 0, atol=1e-6)


def test_a_batch_of_one_has_the_papers_constants(case: Case) -> None:
    A, C = constants(case, Minibatch(1))
    np.testing.assert_allclose(A, 2 * case.problem.constants.L_example, rtol=1e-13)
    for i, optimal in enumerate(optimal_mixtures(case)):
        squares = np.mean([np.sum(g**2) for g in single(case, i, optimal)])
        h = case.functions[i].gradient(optimal)
        assert C[i] == pytest.approx(2 * squares - 2 * np.sum(h**2), rel=1e-10)


def draws(case: Case, estimate: Gradient, number: int = 4000) -> NDArray[np.float64]:
    """Estimates at one point, `[number, clients, *shape]`."""
    x = np.random.default_rng(0).normal(size=(N, *case.problem.shape))
    stacked = jnp.broadcast_to(x, (number, *x.shape))
    keys = jax.random.split(jax.random.key(0), (number, N))
    answer = jax.jit(type(estimate).answer)
    return np.asarray(answer(estimate, case.problem.losses, Vector(stacked), keys).tree)


@pytest.mark.parametrize("estimate", ESTIMATES, ids=str)
def test_estimates_are_unbiased(logistic_case: Case, estimate: Gradient) -> None:
    x = np.random.default_rng(0).normal(size=(N, *logistic_case.problem.shape))
    found = draws(logistic_case, estimate)
    expected = [f.gradient(x[i]) for i, f in enumerate(logistic_case.functions)]
    error = found.std(axis=0) / np.sqrt(len(found))
    assert (np.abs(found.mean(axis=0) - expected) <= 4.5 * error + 1e-13).all()


@pytest.mark.parametrize("estimate", ESTIMATES, ids=str)
def test_estimates_scatter_as_their_law_says(logistic_case: Case, estimate: Gradient) -> None:
    x = np.random.default_rng(0).normal(size=(N, *logistic_case.problem.shape))
    found = draws(logistic_case, estimate)
    for i, f in enumerate(logistic_case.functions):
        squares = np.sum((found[:, i] - f.gradient(x[i])) ** 2, axis=1)
        error = squares.std() / np.sqrt(len(squares))
        expected = variance(logistic_case, estimate, i, x[i])
        assert abs(squares.mean() - expected) <= 4.5 * error + 1e-20


def test_the_total_variance_of_noise_does_not_grow_with_the_outputs(case: Case) -> None:
    noise = draws(case, Noisy(SIGMA)) - draws(case, Exact())
    squares = np.sum(noise.reshape(-1, case.problem.size) ** 2, axis=1)
    error = squares.std() / np.sqrt(len(squares))
    assert abs(squares.mean() - SIGMA**2) <= 4.5 * error


def test_clients_draw_independent_noise(logistic_case: Case) -> None:
    noise = (draws(logistic_case, Noisy(SIGMA)) - draws(logistic_case, Exact()))[..., 0]
    correlation = np.corrcoef(noise.T) - np.eye(N)
    assert np.abs(correlation).max() <= 4.5 / np.sqrt(len(noise))


def test_a_batch_draws_every_row_of_its_client_equally_often_and_no_other() -> None:
    # row j of the data is e_j, so that the gradient of least squares at 0 shows which was drawn
    sizes = [5, 2, 9]
    owner = np.repeat([0, 1, 2], sizes)
    federation = sx.data.from_arrays(np.eye(16), -np.ones(16), owner)
    losses = sx.Problem(federation, sx.models.linear(), 1.0).losses
    keys = jax.random.split(jax.random.key(1), (3000, 3))
    found = Minibatch(2).estimate(losses, jnp.zeros((3000, 3, 16)), keys)
    drawn = 2 * np.asarray(found).sum(axis=0)
    for i, m in enumerate(sizes):
        own = owner == i
        assert not drawn[i, ~own].any()
        assert drawn[i].sum() == pytest.approx(6000)
        assert stats.chisquare(drawn[i, own], np.full(m, 6000 / m)).pvalue > 1e-4


def test_the_same_key_draws_the_same_and_another_key_another(logistic_case: Case) -> None:
    for estimate in (Noisy(SIGMA), Minibatch(4)):
        first, again = draws(logistic_case, estimate), draws(logistic_case, estimate)
        np.testing.assert_array_equal(first, again)
        assert (first[0] != first[1]).any()


def test_names_give_the_estimates() -> None:
    assert gradient("full") == Exact()
    assert gradient("7") == Minibatch(7)
    assert gradient(noise=0.25) == Noisy(0.25)


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ({"batch": 0}, "batch is 0"),
        ({"batch": -3}, "batch is -3"),
        ({"batch": "some"}, "batch is 'some'"),
        ({"noise": -1.0}, "noise is -1"),
        ({"noise": float("nan")}, "noise is nan"),
        ({"batch": 5, "noise": 1.0}, "leave out batch or noise"),
    ],
)
def test_estimates_that_make_no_sense_are_refused(
    arguments: dict[str, float], complaint: str
) -> None:
    with pytest.raises(sx.ScafflixError, match=complaint):
        gradient(**arguments)


def test_a_plan_for_a_batch_larger_than_a_client_is_refused_by_its_name(
    logistic_case: Case,
) -> None:
    # client-3 has 7 examples
    with pytest.raises(sx.ScafflixError, match="batch is 8, but client client-3 has only 7"):
        sx.plan(logistic_case.problem, logistic_case.person, gradient=Minibatch(8))


def test_the_variance_of_a_client_with_equal_rows_is_0_and_not_below() -> None:
    rows = np.full((6, 3), 0.1)
    federation = sx.data.from_clients({"a": (rows, [1.0] * 6), "b": (rows, [0.5] * 6)})
    small = sx.Problem(federation, sx.models.linear(), 0.3)
    _, C = Minibatch(1).expected_smoothness(small, small.constants, lambda: jnp.full((2, 3), 0.7))
    assert (C >= 0).all()
    np.testing.assert_allclose(C, 0, atol=1e-15)


def test_exact_gradients_are_the_losses_own(case: Case) -> None:
    x = jnp.ones((1, N, *case.problem.shape))
    found = jax.jit(Exact.estimate)(Exact(), case.problem.losses, x, jax.random.key(0)[None])
    np.testing.assert_array_equal(found, jax.jit(Losses.gradients)(case.problem.losses, x))
