"""`james-stein`: shrink x_i* towards x by as much as it is noise.

x_i* lies around the client's true optimum with variance V_i = tr(H^-1 S)/n_i in the norm of the
Hessian H of f_i, S the covariance of the gradients of its examples; and x lies at the squared
distance D_i from x_i*. The mixture's excess loss, and its least point, are then about

    (1/2) (alpha^2 max(0, D_i - V_i) + (1 - alpha)^2 V_i),   alpha_i = min(1, V_i / D_i).
"""

from __future__ import annotations

from functools import partial

import numpy as np

from scafflix.core.types import Floats
from scafflix.models import LinearModel
from scafflix.personalization.rules.contract import GRID, Decision, Evidence, Told
from scafflix.personalization.rules.influence import check_size, influence
from scafflix.personalization.rules.predictions import derivatives, predictions, spans
from scafflix.problems.problem import Problem

check = partial(check_size, rule="james-stein")


def evidence(problem: Problem, x_star: Floats, x: Floats) -> Evidence:
    """Every client's curve by the count of noise; none of one with a single example."""
    assert isinstance(problem.model, LinearModel)
    train, n = problem.federation.train, problem.federation.train.counts
    seen = predictions(train, x_star, x)
    slope, C = derivatives(problem.model, seen.own, problem.labels["train"])
    apart = (seen.common - seen.own).reshape(slope.shape)
    V, D = np.zeros(problem.n), np.zeros(problem.n)
    for i, (rows, star) in enumerate(zip(spans(train), x_star, strict=True)):
        A = train.features[rows]
        A = A if isinstance(A, np.ndarray) else A.toarray()
        V[i] = noise(A, slope[rows], C[rows], problem.l2, star)
        far = np.einsum("jp,jpq,jq->", apart[rows], C[rows], apart[rows]) / n[i]
        D[i] = far + problem.l2 * np.sum((x - star) ** 2)
    bias, spread = np.maximum(0.0, D - V)[:, None], V[:, None]
    found = 0.5 * (GRID**2 * bias + (1 - GRID) ** 2 * spread)
    with np.errstate(divide="ignore", invalid="ignore"):
        alpha = np.where(D > V, V / D, 1.0)
    several = n > 1
    found = np.where(several[:, None], found, np.nan)
    return Evidence(found, n.astype(float), alpha=np.where(several, alpha, 0.0))


def noise(features: Floats, slope: Floats, C: Floats, l2: float, x_star: Floats) -> float:
    """V = (1/n^2) sum_j g_j^T H^-1 g_j, g_j the gradient of an example's loss with its share of
    the regularization: their mean is 0."""
    n, k = slope.shape
    Q, R, own = influence(features, C, n * l2, x_star.reshape(-1, k))  # of n H
    squares = np.einsum("jp,jpq,jq->", slope, Q, slope)
    return float(squares + 2 * l2 * np.sum(slope * R) + n * l2**2 * own) / n


def decide(evidence: Evidence, _: Told) -> Decision:
    """As the formula says, whatever others tell; a client that knows nothing stays with its own
    model."""
    assert evidence.alpha is not None
    return Decision(evidence.alpha, evidence.curves)
