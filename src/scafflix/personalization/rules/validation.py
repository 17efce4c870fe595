"""`validation`: the loss of the mixtures on each client's validation examples, for any model."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from jax.tree_util import Partial
from numpy.typing import NDArray

from scafflix.core.errors import ScafflixError
from scafflix.core.store import Store
from scafflix.core.types import Floats
from scafflix.models.network import Params
from scafflix.personalization.mixing import mix
from scafflix.personalization.rules.contract import GRID, Evidence, evidence_of
from scafflix.personalization.rules.predictions import losses, predictions
from scafflix.problems.evaluation import Home, examine_each
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


def evidence(
    problem: Problem, x_star: Floats | Store, x: Params, some: NDArray[np.int64] | None = None
) -> Evidence:
    """Every client's curve on its validation part, or that of some of a network's; none of one
    that has no examples there."""
    part = problem.federation.parts["validation"]
    if not isinstance(x_star, Store):
        seen = predictions(part, x_star, np.asarray(x))
        found = losses(problem, problem.labels["validation"], seen)
        return evidence_of(found, part.owners, problem.n)
    homes = [mixed_by(np.full(problem.n, alpha)) for alpha in GRID]
    rows = examine_each(problem, "validation", x, homes, x_star, some)
    found = np.stack([one.loss for one in rows], axis=1)
    return evidence_of(found, part.owners, problem.n, rows[0].entries)
