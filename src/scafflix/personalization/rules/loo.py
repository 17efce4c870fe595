"""`loo`: what a client's own model says of an example that it did not see, without refitting.

One Newton step from x_i* takes an example j out of its fit:

    x_i^-j = x_i* + (n H - H_j)^-1 g_j,   H the Hessian of f_i at x_i*, n its examples,

where g_j and H_j are gradient and Hessian of the example's loss with its regularization, whose sum
over j is n grad f_i(x_i*) = 0. With M = n H - l2 I only the predictions of the example itself
are needed, by the formula of Sherman, Morrison and Woodbury:

    A_j^T (x_i^-j - x_i*) = (I - Q_j C_j)^-1 (Q_j s_j + l2 R_j),   s_j and C_j derivatives in z.

The common model saw the example too, as one of N clients. Its share 1/N of the same step, with the
client's own Hessian for that of all, takes the example out of x: with a single client both models,
and both steps, are the same. In that Hessian the example's own curvature is put right, D_j at x in
the place of C_j at x_i*, where a client with few examples fits them so well that C_j is almost 0:

    (I + Q_j (D_j - C_j) - Q_j D_j / N)^-1 (Q_j s_j + l2 R_j) / N,   s_j and D_j at x.

A client that took no part in x has the share 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np

from scafflix.core.types import Floats
from scafflix.models import LinearModel
from scafflix.personalization.rules.contract import Evidence, evidence_of
from scafflix.personalization.rules.influence import Influence, check_size, influence
from scafflix.personalization.rules.predictions import (
    Predictions,
    derivatives,
    losses,
    own_predictions,
    predictions,
    spans,
)
from scafflix.problems.problem import Problem

check = partial(check_size, rule="loo")


def influences(problem: Problem, x_star: Floats) -> list[Influence | None]:
    """What each client's examples did to its x_i*, whatever x is: the costly part. Of one with a
    single example, nothing: without it there is no x_i*."""
    assert isinstance(problem.model, LinearModel)
    train = problem.federation.train
    own = own_predictions(train, x_star)
    _, C = derivatives(problem.model, own, problem.labels["train"])
    made: list[Influence | None] = []
    for rows, star in zip(spans(train), x_star, strict=True):
        if rows.stop - rows.start < 2:
            made.append(None)
            continue
        A = train.features[rows]
        A = A if isinstance(A, np.ndarray) else A.toarray()
        ridge = (len(A) - 1) * problem.l2
        made.append(influence(A, C[rows], ridge, star.reshape(len(star), -1)))
    return made


def evidence(
    problem: Problem,
    x_star: Floats,
    x: Floats,
    share: float | None = None,
    moved: Sequence[Influence | None] | None = None,
) -> Evidence:
    """Every client's curve by approximate leave-one-out; none of one with a single example. Who
    judges several x gives the influences of x_i*, as `moved`."""
    assert isinstance(problem.model, LinearModel)
    share = 1 / problem.n if share is None else share
    moved = influences(problem, x_star) if moved is None else moved
    train, labels = problem.federation.train, problem.labels["train"]
    seen = predictions(train, x_star, x)
    slope, C = derivatives(problem.model, seen.own, labels)
    slope_of_x, D = derivatives(problem.model, seen.common, labels)
    unseen = Predictions(seen.own.copy(), seen.common.copy())
    for rows, mine in zip(spans(train), moved, strict=True):
        if mine is None:
            continue
        for z, s, bend, part in (
            (unseen.own, slope, C, 1.0),
            (unseen.common, slope_of_x, D, share),
        ):
            by = left_out(mine, s[rows], bend[rows], bend[rows] - C[rows], problem.l2, part)
            z[rows] += by.reshape(z[rows].shape)
    found = evidence_of(losses(problem, labels, unseen), train.owners, problem.n)
    return found._replace(curves=np.where(train.counts[:, None] > 1, found.curves, np.nan))


def left_out(
    moved: Influence, slope: Floats, bend: Floats, beyond: Floats, l2: float, share: float
) -> Floats:
    """How the predictions of each of a client's examples `[examples, k]`, by a model with these
    slopes and curvatures, change when its share is left out of the fit; `beyond` is how much larger
    the curvatures are than those of the influences."""
    right = np.einsum("jpq,jq->jp", moved.Q, slope) + l2 * moved.R
    matrix = np.eye(slope.shape[1]) + moved.Q @ (beyond - share * bend)
    with np.errstate(all="ignore"):
        return np.linalg.solve(matrix, share * right[..., None])[..., 0]
