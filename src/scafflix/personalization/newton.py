"""Many smooth strongly convex problems at once, each solved to the rounding of its gradient.

Newton's method with conjugate gradients for the step and halving for the step length. Points
stand in rows, `[problems, size]`; a problem that is done waits for the others.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from scafflix.core.compilation import SIMPLE_LOOPS

if TYPE_CHECKING:
    from scafflix.core.types import PerProblem, Rows, Which

MOST_STEPS = 100
MOST_CG_STEPS = 500
# a solver runs for milliseconds once: for programs that use it, compile fast rather than well
QUICK_COMPILATION = {"xla_backend_optimization_level": 0, **SIMPLE_LOOPS}


class Solution(NamedTuple):
    """The minimizers, and the gradient norms that are left."""

    x: Rows
    gradient_norm: PerProblem


class _Step(NamedTuple):
    x: Rows
    value: PerProblem
    gradient: Rows
    norm: PerProblem
    done: Which
    passes: Array


def _dots(a: Rows, b: Rows) -> PerProblem:
    return jnp.sum(a * b, axis=1)


def minimize(
    evaluate: Callable[[Rows], tuple[PerProblem, Rows]],
    hessian_product: Callable[[Rows, Rows], Rows],
    x0: Rows,
) -> Solution:
    """Minimize every row's function, given its value and gradient at any points, until the
    gradient norm stops falling."""
    none = jnp.zeros(len(x0))
    # the first pass only evaluates x0: its direction is 0 and any value improves on infinity
    start = _Step(x0, none + jnp.inf, 0 * x0, none + jnp.inf, none > 0, jnp.zeros((), int))

    def advance(step: _Step) -> _Step:
        forcing = jnp.minimum(0.1, jnp.sqrt(step.norm)) * step.norm
        direction = _solve(lambda v: hessian_product(step.x, v), -step.gradient, forcing, step.done)
        slope = _dots(step.gradient, direction)
        # its rounding: a loss near 0 may be the difference of terms that are not
        slack = jnp.where(step.passes > 0, 1e-14 * (1 + jnp.abs(step.value)), 0.0)

        def too_long(length: PerProblem, value: PerProblem) -> Which:
            falls = value <= step.value + 1e-4 * length * slope + slack
            return ~(falls | step.done | (length < 1e-9))

        def shorten(
            search: tuple[PerProblem, PerProblem, Rows],
        ) -> tuple[PerProblem, PerProblem, Rows]:
            length, value, _ = search
            length = jnp.where(too_long(length, value), 0.5 * length, length)
            return length, *evaluate(step.x + length[:, None] * direction)

        length, value, gradient = jax.lax.while_loop(
            lambda search: jnp.any(too_long(*search[:2])),
            shorten,
            (none + 2.0, none + jnp.nan, 0 * x0),
        )
        norm = jnp.sqrt(_dots(gradient, gradient))
        # near the optimum Newton's norm falls quadratically: where it does not even halve and
        # the value stands still, only rounding is left
        still = (norm > 0.5 * step.norm) & (step.value - value <= slack)
        moves = ~step.done & ((norm < step.norm) | ~still)
        return _Step(
            jnp.where(moves[:, None], step.x + length[:, None] * direction, step.x),
            jnp.where(moves, value, step.value),
            jnp.where(moves[:, None], gradient, step.gradient),
            jnp.where(moves, norm, step.norm),
            step.done | still | (norm == 0),
            step.passes + 1,
        )

    last = jax.lax.while_loop(
        lambda step: ~jnp.all(step.done) & (step.passes < MOST_STEPS), advance, start
    )
    return Solution(last.x, last.norm)


def _solve(product: Callable[[Rows], Rows], b: Rows, tolerance: PerProblem, done: Which) -> Rows:
    """Conjugate gradients on every row, until its residual norm is below its tolerance."""

    def unfinished(residual_sq: PerProblem) -> Which:
        return ~done & (residual_sq > tolerance**2)

    def advance(
        carry: tuple[Rows, Rows, Rows, PerProblem, Array],
    ) -> tuple[Rows, Rows, Rows, PerProblem, Array]:
        x, residual, direction, residual_sq, count = carry
        image = product(direction)
        active = unfinished(residual_sq)
        curvature = jnp.where(active, _dots(direction, image), 1.0)
        length = jnp.where(active, residual_sq / curvature, 0.0)[:, None]
        x, residual = x + length * direction, residual - length * image
        next_sq = _dots(residual, residual)
        ratio = jnp.where(active, next_sq / jnp.where(active, residual_sq, 1.0), 0.0)[:, None]
        direction = jnp.where(active[:, None], residual + ratio * direction, direction)
        return x, residual, direction, next_sq, count + 1

    x, *_ = jax.lax.while_loop(
        lambda carry: jnp.any(unfinished(carry[3])) & (carry[4] < MOST_CG_STEPS),
        advance,
        (jnp.zeros_like(b), b, b, _dots(b, b), jnp.zeros((), int)),
    )
    return x
