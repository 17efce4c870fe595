"""The local optima of linear models, to rounding."""

from __future__ import annotations

from functools import partial

import jax
import numpy as np
from jax import Array

from scafflix.core.errors import ScafflixError
from scafflix.core.precision import in_float64
from scafflix.core.types import Floats
from scafflix.personalization import newton
from scafflix.problems.losses import Losses
from scafflix.problems.problem import Problem

TOLERANCE = 1e-10  # on the gradient norm of f_i at its local optimum


@in_float64
def exact_optima(problem: Problem) -> tuple[Floats, Floats]:
    """x_i* = argmin f_i for all clients at once, and the gradient norms there."""
    constants = problem.constants  # says so where an optimum need not exist
    solution = _local_optima(problem.losses, np.zeros((problem.n, *problem.shape)))
    norms = np.asarray(solution.gradient_norm)
    worst = int(np.argmax(norms))
    if not norms[worst] <= TOLERANCE * max(1.0, float(constants.L[worst])):
        raise ScafflixError(
            f"The local optimum of client {problem.federation.clients[worst]} was not found: "
            f"the gradient norm stays at {norms[worst]:.1e}; scale the features or raise l2."
        )
    return np.asarray(solution.x).reshape(problem.n, *problem.shape), norms


@partial(jax.jit, compiler_options=newton.QUICK_COMPILATION)
def _local_optima(losses: Losses, x0: Array) -> newton.Solution:
    def stacked(x: Array) -> Array:
        return x.reshape(1, *x0.shape)

    def rows(x: Array) -> Array:
        return x.reshape(x0.shape[0], -1)

    def evaluate(x: Array) -> tuple[Array, Array]:
        values, gradients = losses.values_and_gradients(stacked(x))
        return values[0], rows(gradients)

    return newton.minimize(
        evaluate,
        lambda x, v: rows(losses.hessian_products(stacked(x), stacked(v))),
        rows(x0),
    )
