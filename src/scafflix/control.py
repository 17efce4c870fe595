"""How control variates start. Scafflix keeps sum_i alpha_i h_i as it is, and it must be 0:
the paper's condition sum_i h_i = 0 is not enough where the alpha_i differ."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from scafflix.core.arguments import numbers
from scafflix.core.errors import ScafflixError
from scafflix.personalization.alphas import read_alpha
from scafflix.theory import chosen_stepsizes


def project(h: Any, alpha: Any, gamma: Any) -> Any:
    """The nearest h (in the norm of the Lyapunov function) with sum_i alpha_i h_i = 0:

        h_i - (gamma alpha_i / (n gamma_i)) sum_j alpha_j h_j,   1/gamma = mean_j alpha_j^2/gamma_j

    h is `[clients, *shape]`, an array of NumPy or JAX. In a federation this costs one
    communication.
    """
    if not isinstance(h, jax.core.Tracer):  # what JAX traces comes from the engine
        h, alpha = _fitting(h, alpha)
        gamma = chosen_stepsizes(numbers("gamma", gamma), 1.0, len(h))
    xp = h.__array_namespace__()
    share = (alpha / gamma) / (alpha**2 / gamma).sum()
    return h - xp.einsum("n,...->n...", share, xp.einsum("n,n...->...", alpha, h))


def check(h: Any, alpha: Any) -> None:
    """Refuse a start from which Scafflix would not reach the optimum."""
    h, alpha = _fitting(h, alpha)
    total = float(np.linalg.norm(np.einsum("n,n...->...", alpha, h)))
    scale = float(np.sum(alpha * np.linalg.norm(h.reshape(len(alpha), -1), axis=1)))
    if not total <= 1e-10 * scale:
        raise ScafflixError(
            f"The control variates start with ||sum_i alpha_i h_i|| = {total:.3g}; it must be 0 "
            "(sum_i h_i = 0 is not enough where alpha_i differ); use control.project."
        )


def _fitting(h: Any, alpha: Any) -> tuple[Any, Any]:
    """h and alpha as arrays of as many clients."""
    rows = numbers("h", h)
    if rows.ndim < 2:
        raise ScafflixError(f"h has the shape {rows.shape}; give an array for each client.")
    shares = read_alpha(alpha, len(rows))
    if not shares.any():
        raise ScafflixError("Every alpha is 0: nobody takes part, and no h is needed.")
    return rows, shares
