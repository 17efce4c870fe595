"""The mixture of a global and a local model, on which every client's function is evaluated."""

from __future__ import annotations

from typing import Any


def mixture(alpha: Any, x: Any, x_star: Any) -> Any:
    """x~_i = alpha_i x_i + (1 - alpha_i) x_i*, for alpha of any leading shape.

    >>> import numpy as np
    >>> mixture(np.array([1.0, 0.25]), np.array([8.0]), np.array([[0.0], [4.0]])).tolist()
    [[8.0], [5.0]]
    """
    weight = alpha.reshape(alpha.shape + (1,) * (x_star.ndim - alpha.ndim))
    return mix(weight, x, x_star)


def mix(alpha: Any, x: Any, x_star: Any) -> Any:
    """Line 7: x~_i = alpha_i x_i + (1 - alpha_i) x_i*, for one client's points of any kind; no
    local optimum means alpha_i = 1."""
    return x if x_star is None else alpha * x + (1 - alpha) * x_star
