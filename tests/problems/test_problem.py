from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import sparse

import reference
import scafflix as sx
import scafflix.problems.constants
from cases import DIM, KINDS, L2, SIZES, Case, examples, federation, problem
from scafflix.problems.losses import Losses

pytestmark = pytest.mark.usefixtures("float64")

gradients = jax.jit(Losses.gradients)
values_and_gradients = jax.jit(Losses.values_and_gradients)


def values(losses: Losses, x: NDArray[np.float64]) -> jax.Array:
    return values_and_gradients(losses, x)[0]


hessian_products = jax.jit(Losses.hessian_products)
scores = jax.jit(Losses.scores)

TOP = {"logistic": 0.25, "softmax": 0.5, "linear": 1.0}  # curvature of the loss in z


def points(case: Case, runs: int = 2, seed: int = 0) -> NDArray[np.float64]:
    return np.random.default_rng(seed).normal(size=(runs, case.problem.n, *case.problem.shape))


def hessians(case: Case, x: NDArray[np.float64]) -> NDArray[np.float64]:
    """The Hessian of every f_i at x `[1, clients, *shape]`, by differences of the reference's
    gradients."""
    size, step = case.problem.size, 1e-5
    found = np.empty((case.problem.n, size, size))
    for i, f in enumerate(case.functions):
        for k in range(size):
            e = step * np.eye(size)[k].reshape(case.problem.shape)
            difference = f.gradient(x[0, i] + e) - f.gradient(x[0, i] - e)
            found[i, k] = difference.ravel() / (2 * step)
    return (found + found.swapaxes(1, 2)) / 2


def test_values_are_those_of_the_reference(case: Case) -> None:
    x = points(case)
    expected = [[f.value(x[r, i]) for i, f in enumerate(case.functions)] for r in range(2)]
    np.testing.assert_allclose(values(case.problem.losses, x), expected, rtol=1e-13)


def test_gradients_are_those_of_the_reference(case: Case) -> None:
    x = points(case)
    expected = [[f.gradient(x[r, i]) for i, f in enumerate(case.functions)] for r in range(2)]
    np.testing.assert_allclose(gradients(case.problem.losses, x), expected, rtol=1e-12, atol=1e-13)


def test_gradients_are_the_slopes_of_the_values(case: Case) -> None:
    x, v, step = points(case), points(case, seed=1), 1e-6
    losses = case.problem.losses
    difference = values(losses, x + step * v) - values(losses, x - step * v)
    slope = np.sum((gradients(losses, x) * v).reshape(2, case.problem.n, -1), axis=2)
    np.testing.assert_allclose(difference / (2 * step), slope, rtol=1e-6, atol=1e-8)


def test_hessian_products_are_the_slopes_of_the_gradients(case: Case) -> None:
    x, v, step = points(case), points(case, seed=1), 1e-6
    losses = case.problem.losses
    difference = gradients(losses, x + step * v) - gradients(losses, x - step * v)
    np.testing.assert_allclose(
        difference / (2 * step), hessian_products(losses, x, v), rtol=1e-6, atol=1e-8
    )


def test_the_gradient_of_a_batch_is_the_mean_over_the_chosen_rows(case: Case) -> None:
    kind, x = case.problem.model.name, points(case)
    random = np.random.default_rng(2)
    chosen = np.stack([random.integers(0, m, size=(2, 3)) for m in SIZES], axis=1)
    first = np.asarray(case.problem.losses.first)
    found = jax.jit(Losses.batch_gradients)(
        case.problem.losses, x, jnp.asarray(first[:, None] + chosen)
    )
    for i, (A, b) in enumerate(examples(kind)):
        for r in range(2):
            f = reference.FUNCTIONS[kind](A[chosen[r, i]], b[chosen[r, i]], L2)
            np.testing.assert_allclose(found[r, i], f.gradient(x[r, i]), rtol=1e-12, atol=1e-13)


def test_gradient_variances_are_those_over_all_single_examples(case: Case) -> None:
    kind, x = case.problem.model.name, points(case, runs=1)
    found = jax.jit(Losses.gradient_variances)(case.problem.losses, x)[0]
    for i, (A, b) in enumerate(examples(kind)):
        each = [
            reference.FUNCTIONS[kind](A[j : j + 1], b[j : j + 1], L2).gradient(x[0, i])
            for j in range(len(b))
        ]
        expected = np.mean([np.sum((g - np.mean(each, axis=0)) ** 2) for g in each])
        assert found[i] == pytest.approx(expected, rel=1e-11)


def test_sparse_rows_give_the_same_functions_as_dense_ones() -> None:
    random = np.random.default_rng(0)
    A = random.normal(size=(40, 30)) * (random.random((40, 30)) < 0.1)
    b, owner = np.where(random.random(40) < 0.5, 1, -1), [0] * 7 + [1] * 33
    x = random.normal(size=(1, 2, 30))
    for part in (values, gradients):
        pair = [
            part(sx.Problem(sx.data.from_arrays(a, b, owner), sx.models.logistic(), 0.1).losses, x)
            for a in (A, sparse.csr_array(A))
        ]
        np.testing.assert_allclose(*pair, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("kind", KINDS)
def test_tight_smoothness_is_the_largest_eigenvalue_of_the_hessian_bound(kind: str) -> None:
    expected = [TOP[kind] * np.linalg.norm(A, 2) ** 2 / len(A) + L2 for A, _ in examples(kind)]
    np.testing.assert_allclose(problem(kind).constants.L, expected, rtol=1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_the_bound_on_smoothness_is_the_papers(kind: str) -> None:
    expected = [TOP[kind] / len(A) * sum(a @ a for a in A) + L2 for A, _ in examples(kind)]
    np.testing.assert_allclose(problem(kind, "bound").constants.L, expected, rtol=1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_the_bound_on_smoothness_is_above_the_tight_constant(kind: str) -> None:
    assert (problem(kind, "bound").constants.L > 1.01 * problem(kind).constants.L).all()


@pytest.mark.parametrize("kind", KINDS)
def test_the_smoothness_of_an_example_is_that_of_its_longest_row(kind: str) -> None:
    expected = [TOP[kind] * max(a @ a for a in A) + L2 for A, _ in examples(kind)]
    np.testing.assert_allclose(problem(kind).constants.L_example, expected, rtol=1e-12)


def test_least_squares_are_as_convex_as_their_smallest_eigenvalue() -> None:
    expected = [
        np.linalg.svd(A, compute_uv=False)[-1] ** 2 / len(A) + L2 for A, _ in examples("linear")
    ]
    np.testing.assert_allclose(problem("linear").constants.mu, expected, rtol=1e-10)
    assert min(expected) > 1.05 * L2  # else the eigenvalue would not matter


def test_least_squares_with_fewer_rows_than_features_are_as_convex_as_l2() -> None:
    federation = sx.data.from_clients({"a": (np.eye(5)[:3], [1.0, 2.0, 3.0])})
    assert sx.Problem(federation, sx.models.linear(), 0.25).constants.mu == pytest.approx(0.25)


@pytest.mark.parametrize("kind", ["logistic", "softmax"])
def test_classifiers_are_as_convex_as_l2(kind: str) -> None:
    np.testing.assert_array_equal(problem(kind).constants.mu, np.full(len(SIZES), L2))


@pytest.mark.parametrize("scale", [0.0, 0.3, 3.0])
def test_hessians_lie_between_mu_and_l(case: Case, scale: float) -> None:
    spectrum = np.linalg.eigvalsh(hessians(case, scale * points(case, runs=1)))
    constants = case.problem.constants
    assert (spectrum[:, 0] >= constants.mu - 1e-7).all()
    assert (spectrum[:, -1] <= constants.L + 1e-7 * constants.L).all()


def test_the_smoothness_of_least_squares_and_of_logistic_regression_is_attained() -> None:
    # the curvature of the logistic loss is 1/4 everywhere at x = 0
    for kind in ("linear", "logistic"):
        small = problem(kind)
        x = jnp.zeros((1, small.n, DIM))
        for i, (A, _) in enumerate(examples(kind)):
            top = np.linalg.svd(A)[2][0]
            image = hessian_products(small.losses, x, jnp.broadcast_to(top, x.shape))[0, i]
            assert top @ image == pytest.approx(small.constants.L[i], rel=1e-12)


def test_lanczos_stays_above_the_largest_eigenvalue_and_close(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    expected = problem("logistic").constants.L - L2
    monkeypatch.setattr(scafflix.problems.constants, "LARGEST_GRAM", 2)
    found = problem("logistic").constants.L - L2
    assert (expected <= found).all()
    assert (found <= (1 + 2e-5) * expected).all()


def test_lanczos_finds_the_same_constants_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scafflix.problems.constants, "LARGEST_GRAM", 2)
    first, second = (problem("logistic").constants.L for _ in range(2))
    np.testing.assert_array_equal(first, second)


@pytest.mark.parametrize("largest_gram", [2, 3000])
def test_a_client_whose_features_are_all_zero_is_as_smooth_as_l2(
    largest_gram: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scafflix.problems.constants, "LARGEST_GRAM", largest_gram)
    federation = sx.data.from_clients(
        {"zero": (np.zeros((4, 5)), [1, -1, 1, 1]), "other": (np.ones((4, 5)), [1, -1, 1, 1])}
    )
    assert sx.Problem(federation, sx.models.logistic(), 0.5).constants.L[0] == 0.5


def with_test_rows() -> sx.data.Federation:
    A = np.arange(12.0).reshape(6, 2) - 5
    part = (A, [0, 1, 0, 1, 1, 0])
    return sx.data.from_clients(
        {"a": part, "b": part, "c": part}, held_out={"a": (A[:2], [0, 1]), "c": (A[:3], [1, 1, 1])}
    )


def test_a_client_without_test_rows_scores_nan_and_the_others_their_accuracy() -> None:
    small = sx.Problem(with_test_rows(), sx.models.logistic(), 0.1)
    x = jnp.broadcast_to(jnp.array([1.0, 0.0]), (1, 3, 2))  # predicts 1 where the first is > 0
    np.testing.assert_array_equal(scores(small.held_out["test"], x), [[0.5, np.nan, 0.0]])


def test_a_federation_whose_test_part_has_no_rows_scores_nobody() -> None:
    part = (np.eye(3), [0, 1, 0])
    federation = sx.data.from_clients({"a": part, "b": part}, held_out={})
    assert federation.test is not None
    assert sx.Problem(federation, sx.models.logistic(), 0.1).held_out == {}


def test_taking_the_clients_without_test_rows_scores_nobody() -> None:
    small = sx.Problem(with_test_rows(), sx.models.logistic(), 0.1)
    assert small.take(np.array([1])).held_out == {}


def test_the_score_of_least_squares_is_the_mean_squared_error(linear_case: Case) -> None:
    x = points(linear_case, runs=1)
    expected = [np.mean((A @ x[0, i] - b) ** 2) for i, (A, b) in enumerate(examples("linear"))]
    np.testing.assert_allclose(scores(linear_case.problem.losses, x)[0], expected, rtol=1e-12)


def test_some_clients_keep_their_functions(case: Case) -> None:
    chosen = np.array([0, 3])
    x = points(case)
    np.testing.assert_allclose(
        gradients(case.problem.take(chosen).losses, x[:, chosen]),
        gradients(case.problem.losses, x)[:, chosen],
        rtol=1e-12,
        atol=1e-13,
    )


def test_some_clients_keep_the_meaning_of_labels_they_lack() -> None:
    federation = sx.data.from_clients(
        {"a": (np.eye(2), [0, 1]), "b": (np.eye(2), [2, 2]), "c": (np.eye(2), [1, 2])}
    )
    small = sx.Problem(federation, sx.models.softmax(), 0.1).take(np.array([1, 2]))
    assert small.targets.classes == ("0", "1", "2")
    assert small.shape == (2, 3)
    np.testing.assert_array_equal(small.targets.values, [2, 2, 1, 2])


@pytest.mark.parametrize("l2", [-0.1, float("nan"), float("inf")])
def test_l2_must_be_a_finite_number_not_below_0(l2: float) -> None:
    with pytest.raises(sx.ScafflixError, match=f"l2 is {l2}"):
        sx.Problem(federation("logistic"), sx.models.logistic(), l2)


def test_logistic_regression_without_l2_is_refused_by_the_name_of_a_client() -> None:
    small = sx.Problem(federation("logistic"), sx.models.logistic(), 0.0)
    with pytest.raises(sx.ScafflixError, match=r"client-0 is not strongly convex.*give l2 > 0"):
        sx.personalize(small, 0.5)


def test_least_squares_of_full_rank_need_no_l2() -> None:
    assert (sx.Problem(federation("linear"), sx.models.linear(), 0.0).constants.mu > 0).all()


def test_an_unknown_smoothness_is_refused() -> None:
    with pytest.raises(sx.ScafflixError, match="smoothness is 'loose'"):
        problem("logistic", "loose")


def test_logistic_regression_refuses_three_labels() -> None:
    with pytest.raises(sx.ScafflixError, match="exactly two labels"):
        sx.Problem(federation("softmax"), sx.models.logistic(), L2)


def test_models_too_large_for_memory_are_refused_before_any_is_made(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(scafflix.problems.problem, "LARGEST_STATE", 100)
    with pytest.raises(sx.ScafflixError, match="5 clients with 6 parameters each"):
        problem("logistic")
