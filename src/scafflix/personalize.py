"""How much each client keeps of its own optimum: alpha_i, x_i* and the mixture of the two."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import NDArray

from scafflix import newton
from scafflix.errors import ScafflixError
from scafflix.problem import Floats, Losses, Problem

TOLERANCE = 1e-10  # on the gradient norm of f_i at its local optimum
Alpha = float | Sequence[float] | Floats | str | Path


@dataclass(frozen=True)
class Personalization:
    """alpha_i and x_i* of every client."""

    alpha: Floats  # [clients]
    x_star: Array  # [clients, *shape], the local optima
    gradient_norm: Floats  # [clients], ||grad f_i(x_i*)||: how good they are

    @property
    def active(self) -> NDArray[np.int64]:
        """The clients that take part. One with alpha_i = 0 does not depend on x: its model is
        x_i*, and it neither computes nor communicates."""
        return np.flatnonzero(self.alpha > 0)

    def at(self, alpha: Alpha) -> Personalization:
        """The same local optima under another alpha."""
        return replace(self, alpha=read_alpha(alpha, len(self.alpha)))

    def take(self, clients: NDArray[np.int64]) -> Personalization:
        """Some of the clients."""
        if len(clients) == len(self.alpha):
            return self
        return Personalization(
            self.alpha[clients], self.x_star[clients], self.gradient_norm[clients]
        )

    def mix(self, x: Array) -> Array:
        """The models that the clients take home when the global model is x."""
        return mixture(self.alpha, x, self.x_star)


def mixture(alpha: Any, x: Array, x_star: Array) -> Array:
    """x~_i = alpha_i x_i + (1 - alpha_i) x_i*, for alpha of any leading shape.

    >>> mixture(np.array([1.0, 0.25]), np.array([8.0]), np.array([[0.0], [4.0]])).tolist()
    [[8.0], [5.0]]
    """
    weight = jnp.reshape(alpha, jnp.shape(alpha) + (1,) * (jnp.ndim(x_star) - jnp.ndim(alpha)))
    return mix(weight, x, x_star)


def mix(alpha: Any, x: Any, x_star: Any) -> Any:
    """Line 7: x~_i = alpha_i x_i + (1 - alpha_i) x_i*, for one client's points of any kind; no
    local optimum means alpha_i = 1."""
    return x if x_star is None else alpha * x + (1 - alpha) * x_star


def personalize(problem: Problem, alpha: Alpha) -> Personalization:
    """Read alpha (a number, one number a client, or a file of them) and find every x_i*."""
    x_star, norms = local_optima(problem)
    return Personalization(read_alpha(alpha, problem.n), x_star, norms)


def local_optima(problem: Problem) -> tuple[Array, Floats]:
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
    return solution.x.reshape(problem.n, *problem.shape), norms


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


def read_alpha(alpha: Alpha, clients: int) -> Floats:
    """One alpha_i per client.

    >>> read_alpha(0.5, 3).tolist()
    [0.5, 0.5, 0.5]
    """
    where = "alpha"
    if isinstance(alpha, str | Path):
        alpha, where = _parse(alpha)
    try:
        values = np.asarray(alpha, dtype=np.float64)
    except (TypeError, ValueError):
        raise ScafflixError(f"{where} is {alpha!r}; give numbers between 0 and 1.") from None
    if values.ndim == 0:
        values = np.full(clients, values)
    if values.shape != (clients,):
        raise ScafflixError(
            f"{where} has {values.size} values, but there are {clients} clients; "
            "give one number for all or one for each client."
        )
    wrong = np.flatnonzero(~((values >= 0) & (values <= 1)))
    if len(wrong):
        raise ScafflixError(
            f"{where} is {values[wrong[0]]:g} for client number {wrong[0] + 1}; "
            "it must lie between 0 (the client's own optimum) and 1 (the global model)."
        )
    return values


def _parse(alpha: str | Path) -> tuple[float | list[float], str]:
    try:
        return float(str(alpha)), "alpha"
    except ValueError:
        pass
    try:
        words = Path(alpha).read_text().replace(",", " ").split()
    except (OSError, UnicodeDecodeError):
        raise ScafflixError(
            f"alpha is {str(alpha)!r}; it must be a number between 0 and 1, or a text file "
            "with one number for each client."
        ) from None
    try:
        return [float(word) for word in words], f"alpha from {alpha}"
    except ValueError:
        raise ScafflixError(f"{alpha} holds something that is not a number.") from None
