"""A client's message as a row of numbers that can be added to those of others."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

from scafflix.core.types import Floats
from scafflix.federate.messages import Curve, Evaluation, Train
from scafflix.federate.secure.fixed import FixedPoint, fixed_point_for
from scafflix.personalization.rules.blending import SUMS

ARRAYS: dict[str, Any] = {"point": (), "average": (), "restored": ()}
KIND = {"kind": "train"}
LARGEST = 1e12  # of a number that is reported
REPORTED = (
    *("loss", "score", "loss_personal", "alpha", "gain"),
    *("test_loss_local", "test_loss_global", "test_loss_personal"),
)


def kept(message: Train) -> dict[str, Any]:
    """What a client was asked, without arrays, so that it can make its message again."""
    scalars = {name: value for name, value in message._asdict().items() if name not in ARRAYS}
    return scalars | KIND


def reported(told: Curve | Evaluation) -> dict[str, Any]:
    """What a client has to tell at the end: of each number the number and 1, or twice 0 where it
    is unknown or too large. Of a curve the numbers alone, or nothing but 0."""
    if isinstance(told, Curve):
        known = [number for part in told.curve for number in part.tolist()]
        fits = known and all(abs(number) < LARGEST for number in known)
        return {"kind": "curve", "numbers": known if fits else [0.0] * SUMS}
    numbers: list[float] = []
    for name in REPORTED:
        value = getattr(told, name)
        numbers += [value, 1.0] if abs(value) < LARGEST else [0.0, 0.0]
    return {"kind": "evaluation", "numbers": numbers}


def asked(about: Mapping[str, Any]) -> Train:
    """What `kept` kept."""
    return Train(**{name: about[name] for name in Train._fields if name in about}, **ARRAYS)


def row(message: Any, weight: float, loss: float | None, terms: int) -> tuple[Floats, FixedPoint]:
    """All numbers of a message times its weight, then the loss and 1. Without a loss, or if it is
    too large to be added to those of so many clients, twice 0."""
    leaves = [np.asarray(leaf) for leaf in jax.tree.leaves(message)]
    fixed = fixed_point_for(leaves)
    told = loss is not None and abs(loss) < fixed.bound(terms)
    last = np.array([loss, 1.0] if told else [0.0, 0.0])
    with np.errstate(over="ignore"):
        numbers = [weight * leaf.ravel().astype(float) for leaf in leaves]
    return np.concatenate([*numbers, last]), fixed
