"""`loo`: what a client's own model says of an example that it did not see, without refitting.

One Newton step from x_i* takes an example j out of its fit:

    x_i^-j = x_i* + (n H - H_j)^-1 g_j,   H the Hessian of f_i at x_i*, n its examples,

where g_j and H_j are gradient and Hessian of the example's loss with its regularization, whose sum
over j is n grad f_i(x_i*) = 0. With M = n H - l2 I only the predictions of the example itself
are needed, by the formula of Sherman, Morrison and Woodbury:

    A_j^T (x_i^-j - x_i*) = (I - Q_j C_j)^-1 (Q_j s_j + l2 R_j),   s_j and C_j derivatives in z.

The common model saw the example too, as one of N clients. Its share 1/N of the same step, with the
client's own Hessian for that of all, takes the example out of x: with a single client both models,
and both steps, are the same. A client that took no part in x has the share 0.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from scafflix.core.types import Floats
from scafflix.models import LinearModel
from scafflix.personalization.rules.contract import Evidence
from scafflix.personalization.rules.influence import check_size, influence
from scafflix.personalization.rules.predictions import (
    Predictions,
    curves,
    derivatives,
    predictions,
    spans,
)
from scafflix.problems.problem import Problem

check = partial(check_size, rule="loo")


def evidence(problem: Problem, x_star: Floats, x: Floats, share: float | None = None) -> Evidence:
    """Every client's curve by approximate leave-one-out; none of one with a single example."""
    assert isinstance(problem.model, LinearModel)
    share = 1 / problem.n if share is None else share
    train, labels = problem.federation.train, problem.labels["train"]
    seen = predictions(train, x_star, x)
    slope, C = derivatives(problem.model, seen.own, labels)
    slope_of_x, _ = derivatives(problem.model, seen.common, labels)
    unseen = Predictions(seen.own.copy(), seen.common.copy())
    for rows, star in zip(spans(train), x_star, strict=True):
        if rows.stop - rows.start > 1:
            A = train.features[rows]
            A = A if isinstance(A, np.ndarray) else A.toarray()
            slopes = slope[rows], slope_of_x[rows]
            shifts = left_out(A, slopes, C[rows], problem.l2, star, share)
            for z, shift in zip(unseen, shifts, strict=True):
                z[rows] += shift.reshape(z[rows].shape)
    found = curves(problem, train, labels, unseen)
    return Evidence(np.where(train.counts[:, None] > 1, found, np.nan), train.counts.astype(float))


def left_out(
    features: Floats,
    slopes: tuple[Floats, Floats],
    C: Floats,
    l2: float,
    x_star: Floats,
    share: float,
) -> tuple[Floats, Floats]:
    """How the predictions of each of a client's examples `[examples, k]` by x_i* and by x change
    when it is left out of the fit; the slopes are those at the two."""
    n, k = slopes[0].shape
    Q, R, _ = influence(features, C, (n - 1) * l2, x_star.reshape(-1, k))

    def shift(slope: Floats, share: float) -> Floats:
        right = np.einsum("jpq,jq->jp", Q, slope) + l2 * R
        with np.errstate(all="ignore"):
            return np.linalg.solve(np.eye(k) - share * Q @ C, share * right[..., None])[..., 0]

    return shift(slopes[0], 1.0), shift(slopes[1], share)
