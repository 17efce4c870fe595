"""The FLIX objective f~(x) = (1/n) sum_i f_i(alpha_i x + (1 - alpha_i) x_i*), and its optimum.

All functions take several personalizations of one problem at once: the runs of a sweep.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import jax
import jax.numpy as jnp

from scafflix.personalization import newton
from scafflix.personalization.mixing import mixture
from scafflix.problems.losses import Losses

if TYPE_CHECKING:
    from scafflix.core.types import Models, PerClient, PerRun, Points, Rows, Stars


class Optimum(NamedTuple):
    """The solution x* of each run, f~(x*) and h_i* = grad f_i(x~_i*)."""

    x: Models
    value: PerRun
    h: Points
    gradient_norm: PerRun  # ||grad f~(x*)||: how good it is


def evaluate(
    losses: Losses, alpha: PerClient, x_star: Stars, x: Models
) -> tuple[PerRun, Models, Points]:
    """f~(x), grad f~(x) = (1/n) sum_i alpha_i grad f_i(x~_i), and its terms grad f_i(x~_i)."""
    x_tilde = mixture(alpha, x[:, None], x_star[None])
    values, gradients = losses.values_and_gradients(x_tilde)
    return jnp.mean(values, axis=1), _average(alpha, gradients), gradients


@partial(jax.jit, compiler_options=newton.QUICK_COMPILATION)
def optimum(losses: Losses, alpha: PerClient, x_star: Stars) -> Optimum:
    """Minimize f~ for every run, from the mean of the local optima."""
    runs, shape = len(alpha), x_star.shape[1:]

    def points(x: Rows) -> Models:
        return x.reshape(runs, *shape)

    def hessian_product(x: Rows, v: Rows) -> Rows:
        x_tilde = mixture(alpha, points(x)[:, None], x_star[None])
        v_tilde = mixture(alpha, points(v)[:, None], jnp.zeros_like(x_star)[None])
        return _average(alpha, losses.hessian_products(x_tilde, v_tilde)).reshape(runs, -1)

    def value_and_gradient(x: Rows) -> tuple[PerRun, Rows]:
        value, gradient, _ = evaluate(losses, alpha, x_star, points(x))
        return value, gradient.reshape(runs, -1)

    x0 = jnp.broadcast_to(jnp.mean(x_star, axis=0), (runs, *shape)).reshape(runs, -1)
    solution = newton.minimize(value_and_gradient, hessian_product, x0)
    x = points(solution.x)
    value, _, h = evaluate(losses, alpha, x_star, x)
    return Optimum(x, value, h, solution.gradient_norm)


def _average(alpha: PerClient, g: Points) -> Models:
    return jnp.einsum("rn,rn...->r...", alpha, g) / alpha.shape[1]
