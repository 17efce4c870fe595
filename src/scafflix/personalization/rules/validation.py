"""`validation`: the loss of the mixtures on each client's validation examples, for any model."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from jax.tree_util import Partial

from scafflix.core.errors import ScafflixError
from scafflix.core.store import Store
from scafflix.core.types import Floats
from scafflix.models.network import Params
from scafflix.personalization.mixing import mix
from scafflix.personalization.rules.contract import GRID, Evidence
from scafflix.personalization.rules.predictions import curves, predictions
from scafflix.problems.evaluation import Home, evaluate
from scafflix.problems.problem import Problem


class Mixer(NamedTuple):
    """What the mixture asks of a client."""

    alpha: Any
    x_star: Any = None


def _mixed(client: Mixer, state: Any, x: Any) -> Any:
    return mix(client.alpha, x, client.x_star)


def mixed_by(alpha: Floats) -> Home:
    """Clients that take home the mixture with these alpha_i, of a network."""
    return Home(Partial(_mixed), Mixer(alpha.astype(np.float32)))


def check(problem: Problem) -> None:
    """Refuse data without a validation part."""
    part = problem.federation.validation
    if part is None or not part.counts.any():
        raise ScafflixError(
            "alpha is 'validation', but no examples are held out for it; give validation, such "
            "as 0.1."
        )


def evidence(problem: Problem, x_star: Floats | Store, x: Params) -> Evidence:
    """Every client's curve on its validation part; none of one that has no examples there."""
    part = problem.federation.parts["validation"]
    if isinstance(x_star, Store):
        columns = [
            evaluate(problem, "validation", x, mixed_by(np.full(problem.n, alpha)), x_star).loss
            for alpha in GRID
        ]
        found = np.stack(columns, axis=1)
    else:
        seen = predictions(part, x_star, np.asarray(x))
        found = curves(problem, part, problem.labels["validation"], seen)
    return Evidence(found, part.counts.astype(float))
