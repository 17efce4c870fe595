from __future__ import annotations

import jax
import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import sparse

from scafflix.data import Examples
from scafflix.problems.features import DenseRows, SparseRows, layout

pytestmark = pytest.mark.usefixtures("float64")

COLUMNS = 3
WIDEST = 32  # entries in a group


def of_clients(features: object, counts: list[int]) -> Examples:
    offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    return Examples(features, np.zeros(offsets[-1]), offsets)


def dense(counts: list[int], dim: int) -> Examples:
    return of_clients(np.random.default_rng(0).normal(size=(sum(counts), dim)), counts)


def sparse_rows(counts: list[int], dim: int, fill: float = 0.05) -> Examples:
    A = np.random.default_rng(1).normal(size=(sum(counts), dim))
    A *= np.random.default_rng(2).random(A.shape) < fill
    return of_clients(sparse.csr_array(A), counts)


def long_rows() -> Examples:
    """One row and one column with more nonzeros than two groups hold, empty ones beside them."""
    counts, dim = [90, 3, 60], 400
    A = np.zeros((sum(counts), dim))
    A[5, 10 : 10 + 2 * WIDEST + 7] = np.arange(1, 2 * WIDEST + 8)
    A[: 2 * WIDEST + 9, 3] = 1.5
    A[91, 399] = -2.0
    A[100:150, 7] = np.linspace(-1, 1, 50)
    return of_clients(sparse.csr_array(A), counts)


EXAMPLES = {
    "dense": dense([9, 1, 23, 4], 5),
    "dense, one row": dense([1], 5),
    "dense, a client without rows": dense([3, 0, 2], 5),
    "sparse": sparse_rows([9, 1, 23, 4], 40),
    "sparse, one row": sparse_rows([1], 40, fill=0.2),
    "sparse, a client without rows": sparse_rows([3, 0, 2], 40),
    "sparse, long rows": long_rows(),
    "sparse, all zero": of_clients(sparse.csr_array((6, 8)), [2, 4]),
    "dense, all zero": of_clients(np.zeros((6, 8)), [2, 4]),
}


@pytest.fixture(params=EXAMPLES.values(), ids=EXAMPLES.keys())
def examples(request: pytest.FixtureRequest) -> Examples:
    return request.param


def matrix(examples: Examples) -> NDArray[np.float64]:
    A = examples.features
    return A.toarray() if sparse.issparse(A) else A


def parameters(examples: Examples) -> NDArray[np.float64]:
    shape = (len(examples.counts), examples.features.shape[1], COLUMNS)
    return np.random.default_rng(3).normal(size=shape)


def dot(rows: DenseRows | SparseRows, W: NDArray[np.float64]) -> jax.Array:
    return jax.jit(type(rows).dot)(rows, W)


def dot_t(rows: DenseRows | SparseRows, R: NDArray[np.float64]) -> jax.Array:
    return jax.jit(type(rows).dot_t)(rows, R)


def batch_dot(
    rows: DenseRows | SparseRows, chosen: NDArray[np.int64], x: NDArray[np.float64]
) -> jax.Array:
    return jax.jit(type(rows).batch_dot)(rows, chosen, x)


def batch_dot_t(
    rows: DenseRows | SparseRows, chosen: NDArray[np.int64], R: NDArray[np.float64]
) -> jax.Array:
    return jax.jit(type(rows).batch_dot_t)(rows, chosen, R)


def test_a_row_times_the_parameters_of_its_client(examples: Examples) -> None:
    A, W = matrix(examples), parameters(examples)
    rows, place, _ = layout(examples)
    expected = [A[j] @ W[i] for j, i in enumerate(examples.owners)]
    np.testing.assert_allclose(dot(rows, W)[place], expected, rtol=1e-13, atol=1e-13)


def test_the_transposed_product_sums_over_the_rows_of_each_client(examples: Examples) -> None:
    A = matrix(examples)
    rows, place, owner = layout(examples)
    R = np.zeros((len(owner), COLUMNS))
    R[place] = np.random.default_rng(4).normal(size=(len(place), COLUMNS))
    expected = np.zeros((len(examples.counts), A.shape[1], COLUMNS))
    for j, i in enumerate(examples.owners):
        expected[i] += np.outer(A[j], R[place[j]])
    np.testing.assert_allclose(dot_t(rows, R), expected, rtol=1e-12, atol=1e-12)


def test_the_two_products_are_adjoint(examples: Examples) -> None:
    W = parameters(examples)
    rows, _, owner = layout(examples)
    R = np.random.default_rng(5).normal(size=(len(owner), COLUMNS))
    there = np.vdot(dot(rows, W), R)
    back = np.vdot(W, dot_t(rows, R))
    assert there == pytest.approx(back, rel=1e-12, abs=1e-12)


@pytest.mark.parametrize("outputs", [(), (COLUMNS,)], ids=["one output", "several"])
def test_chosen_rows_multiply_like_the_rows_of_the_matrix(
    examples: Examples, outputs: tuple[int, ...]
) -> None:
    A, n, random = matrix(examples), len(examples.counts), np.random.default_rng(6)
    rows, place, _ = layout(examples)
    # two runs, three rows for each client; which rows does not matter to the product
    chosen = random.integers(0, len(A), size=(2, n, 3))
    x = random.normal(size=(2, n, A.shape[1], *outputs))
    R = random.normal(size=(2, n, 3, *outputs))
    there = np.einsum("rnbd,rnd...->rnb...", A[chosen], x)
    back = np.einsum("rnbd,rnb...->rnd...", A[chosen], R)
    np.testing.assert_allclose(batch_dot(rows, place[chosen], x), there, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(batch_dot_t(rows, place[chosen], R), back, rtol=1e-12, atol=1e-12)


def test_empty_cells_of_many_clients_and_features_take_no_room() -> None:
    clients, dim = 500, 2000
    column = np.arange(clients) % dim
    A = sparse.csr_array((np.ones(clients), (np.arange(clients), column)), shape=(clients, dim))
    rows, _, _ = layout(of_clients(A, [1] * clients))
    held = sum(leaf.nbytes for leaf in jax.tree.leaves(rows))
    assert held < 100 * clients  # one nonzero each, and not 2000 cells


def test_every_row_knows_its_client(examples: Examples) -> None:
    _, place, owner = layout(examples)
    np.testing.assert_array_equal(owner[place], examples.owners)
    assert (np.diff(owner) >= 0).all()


def test_sparse_data_with_few_nonzeros_stay_sparse() -> None:
    assert isinstance(layout(EXAMPLES["sparse"]).rows, SparseRows)


def test_sparse_data_with_many_nonzeros_become_dense() -> None:
    crowded = of_clients(sparse.csr_array(np.ones((6, 8))), [2, 4])
    assert isinstance(layout(crowded).rows, DenseRows)


@pytest.mark.parametrize(
    "counts",
    [
        [5000] + [1] * 300,
        [1] * 1000 + [999],
        [17, 1, 1, 1],
        [1000, 1001, 1300],
        [2**k for k in range(12)],
    ],
)
def test_skewed_sizes_fill_at_most_a_quarter_more_rows(counts: list[int]) -> None:
    rows = layout(of_clients(np.ones((sum(counts), 1)), counts)).rows
    blocks, height, _ = rows.blocks.shape
    assert sum(counts) <= blocks * height <= 1.25 * sum(counts)
