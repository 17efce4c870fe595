"""How clients fare with models of one kind, beside their own."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from scafflix.core.types import Floats


class Fate(NamedTuple):
    """How the clients of one division fare with one kind of model."""

    loss: float  # the mean over clients on their test examples
    accuracy: float
    p10: float  # of the accuracy: a tenth of the clients do worse
    hurt: float  # share of the clients whose loss is above that of their own model


def fate(loss: Floats, score: Floats, alone: Floats) -> Fate:
    """From the loss and the score of every client, and the loss of its own model; over those that
    have test examples."""
    known = np.isfinite(alone)
    loss, score = loss[known], score[known]
    unlucky = float(np.percentile(score, 10))
    hurt = float((loss > alone[known]).mean())
    return Fate(float(loss.mean()), float(score.mean()), unlucky, hurt)


class Fates(NamedTuple):
    """Of one division, by the line."""

    ends: dict[str, Fate]  # after the last round: local, global, common alphas, rules
    rounds: dict[str, dict[int, Fate]]  # line -> rounds -> fate
    newcomers: dict[int, dict[str, Fate]]  # examples -> line -> fate
