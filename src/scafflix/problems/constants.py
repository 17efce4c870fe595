"""The constants of each f_i: its smoothness L_i and its strong convexity mu_i."""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import numpy as np

from scafflix.core.errors import ScafflixError
from scafflix.core.types import Floats
from scafflix.data.federation import Features, Federation

LARGEST_GRAM = 3000  # above it lambda_max is found by Lanczos instead of a full decomposition


class Constants(NamedTuple):
    """What Assumption 1 asks of each f_i: L_i-smooth and mu_i-strongly convex."""

    L: Floats
    mu: Floats
    L_example: Floats  # the largest smoothness of a single example's loss

    @property
    def kappa(self) -> Floats:
        """The condition numbers L_i / mu_i."""
        return self.L / self.mu


def constants_of(
    federation: Federation, curvature: tuple[float, float], l2: float, smoothness: str
) -> Constants:
    """L_i and mu_i of a linear model whose loss has this curvature in the linear predictor.

    `tight`: L_i = c lambda_max(A_i^T A_i / n_i) + l2, with c the largest curvature of the loss
    (1/4 for the logistic loss).
    `bound`: the paper's L_i = (c / n_i) sum_j ||a_ij||^2 + l2.
    """
    train, (low, high) = federation.train, curvature
    norms = np.split(row_norms_sq(train.features), train.offsets[1:-1])
    largest = np.array([np.mean(own) for own in norms])
    smallest = np.zeros(len(norms))
    if low > 0 or smoothness == "tight":
        clients = [train.features[start:stop] for start, stop in pairwise(train.offsets)]
        smallest, lambda_max = np.array([_extreme_eigenvalues(A) for A in clients]).T
        largest = lambda_max if smoothness == "tight" else largest
    constants = Constants(
        L=high * largest + l2,
        mu=low * smallest + l2,
        L_example=high * np.array([np.max(own) for own in norms]) + l2,
    )
    for client, mu in zip(federation.clients, constants.mu, strict=True):
        if not mu > 0:
            raise ScafflixError(
                f"f_i of client {client} is not strongly convex (mu_i = {mu:.3g}), so that "
                "its optimum may not exist; give l2 > 0."
            )
    return constants


def row_norms_sq(features: Features) -> Floats:
    """||a_j||^2 of every row."""
    if isinstance(features, np.ndarray):
        return np.einsum("ij,ij->i", features, features)
    return np.asarray(features.multiply(features).sum(axis=1), float).ravel()


def _extreme_eigenvalues(A: Features) -> tuple[float, float]:
    rows, dim = A.shape
    if min(rows, dim) > LARGEST_GRAM:
        # 0 is a valid lower bound; the margin covers the tolerance of the iteration, whose start
        # is fixed, so that the same data have the same constants to the last bit
        if not row_norms_sq(A).any():
            return 0.0, 0.0
        from scipy.sparse.linalg import svds  # takes longer to import than most use it

        largest = svds(A, k=1, tol=1e-6, return_singular_vectors=False, rng=0)
        return 0.0, float(np.asarray(largest)[0]) ** 2 / rows * (1 + 1e-5)
    gram = A @ A.T if rows < dim else A.T @ A
    spectrum = np.linalg.eigvalsh(gram if isinstance(gram, np.ndarray) else gram.toarray()) / rows
    low, high = float(spectrum[0]), float(spectrum[-1])
    # what may be rounding is not strong convexity
    return (0.0 if rows < dim else max(0.0, low - dim * np.finfo(float).eps * high)), high
