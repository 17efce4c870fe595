"""How long to tune a model that is good already: one number of steps for all clients, by doubling.

Some clients tune by 20, 40, 80, ... steps. After each, all their validation examples together tell
how good the best common mixture with x is; it goes on as long as that gets clearly better. A client
that stopped by its own few examples could not let these choose alpha_i too. Here one number of
a few is chosen by the examples of all, which leaves those of each as good as unseen.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from scafflix.core import streams
from scafflix.core.streams import Stream
from scafflix.core.types import Floats
from scafflix.personalization.rules.blending import weights
from scafflix.personalization.rules.contract import Evidence

LEAST, MOST = 20, 640  # steps
SAMPLE = 30  # clients that try, at most
WORTH = 2e-3  # of the loss: less is not worth twice the computing


class Length(NamedTuple):
    """For how many steps all clients tune, and what some lost after how many."""

    steps: int
    losses: Mapping[str, float]

    @property
    def tried_last(self) -> bool:
        """Whether those who tried ended with as many steps as were chosen."""
        return self.steps == max(map(int, self.losses))


def triers(clients: int, seed: int) -> NDArray[np.int64]:
    """Who tries."""
    drawn = streams.generator(seed, Stream.OPTIMA, 1)
    return np.sort(drawn.choice(clients, min(SAMPLE, clients), replace=False))


def choose_length(tried: Callable[[int], Evidence]) -> Length:
    """The number of steps after which twice as many no longer save enough; `tried` tells what
    clients know of their segments after so many.

    >>> def tried(steps: int) -> Evidence:
    ...     own = np.full((4, 21), 1 + 1 / min(steps, 80))
    ...     return Evidence(own + 0.001 * np.arange(4)[:, None], np.full(4, 10.0))
    >>> choose_length(tried).steps
    80
    """
    steps, before = LEAST, _best_mixture(tried(LEAST))
    losses = {str(steps): before.loss}
    while steps < MOST:
        after = _best_mixture(tried(2 * steps))
        losses[str(2 * steps)] = after.loss
        if not _clearly_less(before, after):
            break
        steps, before = 2 * steps, after
    return Length(steps, losses)


class _Mixture(NamedTuple):
    """What clients lose with the alpha that is best for all of them together."""

    each: Floats  # [clients that know]
    weight: Floats

    @property
    def loss(self) -> float:
        return float(np.average(self.each, weights=self.weight))


def _best_mixture(evidence: Evidence) -> _Mixture:
    known = evidence.known
    curves, weight = evidence.curves[known], weights(evidence.weight[known])
    return _Mixture(curves[:, np.argmin(weight @ curves)], weight)


def _clearly_less(before: _Mixture, after: _Mixture) -> bool:
    """Whether the mean falls by more than its standard error between clients: what is less, or
    gained by one of them alone, may be chance. The share of the loss that it must be is small: from
    a poor start, or at a small rate, the first steps save little, and each doubling twice as much
    as the one before."""
    saved, w = before.each - after.each, before.weight / before.weight.sum()
    mean, number = float(w @ saved), len(saved)
    if number < 2:
        return False
    error = np.sqrt(w**2 @ (saved - mean) ** 2 * number / (number - 1))
    return bool(mean > max(error, WORTH * abs(before.loss)))
