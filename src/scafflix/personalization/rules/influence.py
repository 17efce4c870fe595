"""What one example did to a linear model: the quadratic forms in which it enters the Hessian.

An example with features a moves k predictions z = W^T a. A = a (x) I_k is the derivative of z in
the parameters, and the Hessian of examples is sum_j A_j C_j A_j^T with C_j = d^2 loss / dz^2.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from scafflix.core.errors import ScafflixError
from scafflix.core.types import Floats
from scafflix.problems.problem import Problem

LARGEST = 2048  # parameters of a model whose Hessian is inverted for every client
AT_ONCE = 2**22  # numbers of a block of examples


class Influence(NamedTuple):
    """With M = sum_j A_j C_j A_j^T + ridge I, for every example j."""

    Q: Floats  # [examples, k, k], A_j^T M^-1 A_j
    R: Floats  # [examples, k], A_j^T M^-1 x
    norm_sq: float  # x^T M^-1 x


def check_size(problem: Problem, rule: str) -> None:
    """Refuse a model without a Hessian in z, or with one that is too large to invert."""
    if not problem.linear:
        raise ScafflixError(
            f"alpha is {rule!r}, which needs the Hessian of a linear model; for the network "
            f"{problem.network.name} use validation."
        )
    if problem.size > LARGEST:
        raise ScafflixError(
            f"alpha is {rule!r}, which inverts a matrix of {problem.size} x {problem.size} for "
            f"every client; with more than {LARGEST} parameters use validation."
        )


def influence(features: Floats, C: Floats, ridge: float, x: Floats) -> Influence:
    """The forms of one client's examples `[examples, dim]`, with x `[dim, k]`."""
    dim, k = x.shape
    M = ridge * np.eye(dim * k)
    for rows in _blocks(len(features), k * k * dim):
        A = features[rows]
        spread = C[rows][:, :, :, None] * A[:, None, None, :]  # [rows, k, k, dim]
        made = (A.T @ spread.reshape(len(A), -1)).reshape(dim, k, k, dim)
        M += made.swapaxes(2, 3).reshape(dim * k, dim * k)
    inverse = np.linalg.inv(M)
    image = (inverse @ x.ravel()).reshape(dim, k)
    Q = np.empty_like(C)
    for rows in _blocks(len(features), k * k * dim):
        A = features[rows]
        half = (A @ inverse.reshape(dim, -1)).reshape(len(A), k, dim, k)
        Q[rows] = np.einsum("jpvq,jv->jpq", half, A)
    return Influence(Q, features @ image, float(x.ravel() @ image.ravel()))


def _blocks(examples: int, numbers: int) -> Iterator[slice]:
    """Examples a few at a time, with so many numbers each."""
    step = max(1, AT_ONCE // numbers)
    return (slice(start, start + step) for start in range(0, examples, step))
