"""What a problem is made of, in digests: so that what was made for one is not used with another."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray

from scafflix.core.digest import digest_of, program_of
from scafflix.data.federation import Federation
from scafflix.models.linear import LinearModel
from scafflix.models.network import Network, mean_loss, tallies

Example = tuple[Any, Any, Any]  # parameters, an input and its label
SAME = 1e-3  # of the size of a module's outputs: more is another module, less is rounding


def loss(model: LinearModel | Network, network: Network, example: Example) -> str:
    """The loss and its gradient, operation by operation, and the bounds on its curvature."""
    known = list(model.curvature) if isinstance(model, LinearModel) else []
    value = partial(mean_loss, network)
    return digest_of(known, *_program(value, *example), *_program(jax.grad(value), *example))


def score(network: Network, example: Example) -> str:
    """What is measured on examples."""
    return digest_of(network.metric, *_program(partial(tallies, network), *example))


def start(network: Network) -> str:
    """Where parameters begin."""
    key = jax.eval_shape(lambda: jax.random.key(0))  # any: what is done with it counts
    return digest_of(*_program(network.init, key))


def answers_alike(now: Sequence[float], then: Sequence[float]) -> bool:
    """Whether the size of a module's outputs, and some sums of them, are what they were."""
    return len(now) == len(then) and np.allclose(now, then, rtol=0, atol=SAME * abs(then[0]))


def data(
    federation: Federation,
    labels: Mapping[str, NDArray[Any]],
    classes: Sequence[str],
    *names: str,
) -> str:
    """Who has which examples in some of the parts."""
    things: list[Any] = [list(federation.clients), list(classes)]
    for name in names:
        part = federation.parts[name]
        if isinstance(part.features, np.ndarray):
            things += [name, part.features]
        else:
            things += [name, part.features.data, part.features.indices, part.features.indptr]
        things += [labels[name], part.offsets]
    return digest_of(*things)


def _program(function: Any, *arguments: Any) -> list[Any]:
    text, held = program_of(function, *arguments)
    return [text, *held]
