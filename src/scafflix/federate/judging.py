"""alpha_i by a rule, on a node: what it knows of its segment, what it tells, and what it chooses.

A client sends one array, which the server adds up: what each alpha of the grid is expected to cost
beyond alpha = 0, and how that goes with 1/n_i, all times its weight. What comes back are the mean
costs, the mean of 1/n_i, and the noise of own models, v/n_i.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from scafflix.core.durable import Arrays
from scafflix.core.errors import ScafflixError
from scafflix.core.types import Floats
from scafflix.core.vector import Vector
from scafflix.federate.messages import Fault, problem_with_arrays
from scafflix.personalization.rules import blending
from scafflix.personalization.rules.choosing import Choice, choice
from scafflix.personalization.rules.contract import GRID, Evidence, Rule, Told

SENT = f"float64[{blending.SUMS}]"
RETURNED = f"float64[{len(GRID)}];float64[2]"
LARGEST = 1e100  # of a loss in a curve: sums of them stay finite


class Judgement(NamedTuple):
    """What one client knows of its segment."""

    rule: Rule
    evidence: Evidence  # of this client alone
    note: NDArray[np.str_]  # [1], what it lacks


@runtime_checkable
class Judge(Protocol):
    """A learner that can choose alpha_i."""

    def rule(self, word: str) -> str:
        """The name of the rule that the word stands for here; refuse one that cannot serve."""

    def judged(self, word: str, x_star: Vector, x: Vector, clients: int) -> Judgement:
        """What it knows of the segment from x_i* to x, which so many clients trained."""

    def test_loss(self, point: Vector) -> float:
        """The mean loss on test examples; NaN where there are none."""


def judge_of(learner: object, word: str) -> Judge:
    """The learner, if alpha_i can be chosen by it."""
    if not isinstance(learner, Judge):
        raise ScafflixError(
            f"alpha is {word!r}, but the learner {type(learner).__name__} has no rule, judged and "
            "test_loss to choose it by; add them, or give the node a number with --alpha."
        )
    return learner


def chosen(found: Judgement, others: Told) -> Choice:
    """alpha_i, and what it is expected to gain."""
    made = found.rule.decide(found.evidence, others)
    return choice(found.rule.name, found.evidence, made, found.note)


def curve_of(found: Judgement) -> Arrays:
    """What a client tells of its segment; nothing if it knows nothing."""
    return (blending.sums(found.evidence),) if found.evidence.known[0] else ()


def arrays_of(told: Told) -> Arrays:
    """As it is sent to clients."""
    return told.curve, np.array([told.scarcity, told.noise])


def told_in(arrays: Arrays) -> Told:
    """As it was meant."""
    curve, (scarcity, noise) = arrays
    return Told(curve, float(scarcity), float(noise))


def mean_of(curves: Iterable[Arrays]) -> Told:
    """The mean of what clients sent: all that is needed are sums."""
    known = [arrays[0] for arrays in curves if arrays]
    return blending.mean(sum(known, np.zeros(blending.SUMS)))


def problem_with_sums(arrays: Arrays) -> Fault | None:
    """What is wrong with what a client sent."""
    wrong = problem_with_arrays("curve", arrays, SENT) or _problem_with_curve(arrays[0][:-3])
    if wrong is not None:
        return wrong
    weight, scarcity, squares = arrays[0][-3:]
    if not 0 < squares <= scarcity <= weight < blending.OTHERS:
        return Fault(
            "range",
            f"it tells with the weight {weight:g}; give 0 to {blending.OTHERS:g}, and no more for "
            "1/n and its square.",
        )
    return None


def problem_with_mean(arrays: Arrays) -> Fault | None:
    """What is wrong with what the server sent."""
    wrong = problem_with_arrays("curve", arrays, RETURNED) or _problem_with_curve(arrays[0])
    if wrong is not None:
        return wrong
    scarcity, noise = arrays[1]
    if not 0 < scarcity <= 1 or not 0 <= noise <= LARGEST:
        return Fault(
            "range",
            f"its 1/n is {scarcity:g} and its noise {noise:g}; they must be above 0 and at most 1, "
            f"and 0 to {LARGEST:g}.",
        )
    return None


def _problem_with_curve(curve: Floats) -> Fault | None:
    if curve[0] != 0 or np.abs(curve).max() > LARGEST:
        return Fault("range", f"its curve must begin with 0 and stay within {LARGEST:g}.")
    return None
