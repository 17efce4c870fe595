"""How control variates start. Scafflix keeps sum_i alpha_i h_i as it is, and it must be 0:
the paper's condition sum_i h_i = 0 is not enough where the alpha_i differ."""

from __future__ import annotations

import jax.numpy as jnp
from jax import Array

from scafflix.errors import ScafflixError


def project(h: Array, alpha: Array, gamma: Array) -> Array:
    """The nearest h (in the norm of the Lyapunov function) with sum_i alpha_i h_i = 0:

        h_i - (gamma alpha_i / (n gamma_i)) sum_j alpha_j h_j,   1/gamma = mean_j alpha_j^2/gamma_j

    h is `[clients, *shape]`. In a federation this costs one communication.
    """
    share = (alpha / gamma) / jnp.sum(alpha**2 / gamma)
    return h - jnp.einsum("n,...->n...", share, jnp.einsum("n,n...->...", alpha, h))


def check(h: Array, alpha: Array) -> None:
    """Refuse a start from which Scafflix would not reach the optimum."""
    total = float(jnp.linalg.norm(jnp.einsum("n,n...->...", alpha, h)))
    scale = float(jnp.sum(alpha * jnp.linalg.norm(h.reshape(len(alpha), -1), axis=1)))
    if not total <= 1e-10 * scale:
        raise ScafflixError(
            f"The control variates start with ||sum_i alpha_i h_i|| = {total:.3g}; it must be 0 "
            "(sum_i h_i = 0 is not enough where alpha_i differ); use control.project."
        )
