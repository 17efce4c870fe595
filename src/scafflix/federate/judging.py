"""alpha_i by a rule, on a node: what it knows of its segment, what it tells, and what it chooses.

A client sends sums over its examples as two arrays: what each alpha of the grid is expected to cost
beyond alpha = 0, and their number. What comes back are means over the examples of all clients that
sent some: the costs, and 1/n_i.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from scafflix.core.durable import Arrays
from scafflix.core.errors import ScafflixError
from scafflix.core.vector import Vector
from scafflix.federate.messages import Fault, problem_with_arrays
from scafflix.personalization.rules import blending
from scafflix.personalization.rules.choosing import Choice, choice
from scafflix.personalization.rules.contract import GRID, Evidence, Rule, Told

LAYOUT = f"float64[{len(GRID)}];float64[1]"
LARGEST = 1e100  # of a loss in a curve: sums of them stay finite
MOST = 1e12  # examples of a client


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
    if not found.evidence.known[0]:
        return ()
    costs, examples = blending.sums(found.evidence)
    return costs, np.array([examples])


def arrays_of(told: Told) -> Arrays:
    """As it is sent to clients."""
    return told.curve, np.array([told.scarcity])


def told_in(arrays: Arrays) -> Told:
    """As it was meant."""
    curve, scarcity = arrays
    return Told(curve, float(scarcity[0]))


def mean_of(curves: Iterable[Arrays]) -> Told:
    """The mean of what clients sent: all that is needed are sums."""
    known = [arrays for arrays in curves if arrays]
    costs = sum((one[0] for one in known), np.zeros(len(GRID)))
    return blending.mean(costs, sum(float(one[1][0]) for one in known), len(known))


def problem_with_sums(arrays: Arrays) -> Fault | None:
    """What is wrong with what a client sent."""
    wrong = _problem_with_curve(arrays)
    if wrong is not None:
        return wrong
    (examples,) = arrays[1]
    if not 1 <= examples <= MOST:
        return Fault("range", f"it tells of {examples:g} examples; give 1 to {MOST:g}.")
    return None


def problem_with_mean(arrays: Arrays) -> Fault | None:
    """What is wrong with what the server sent."""
    wrong = _problem_with_curve(arrays)
    if wrong is not None:
        return wrong
    (scarcity,) = arrays[1]
    if not 0 < scarcity <= 1:
        return Fault("range", f"its 1/n is {scarcity:g}; it must be above 0 and at most 1.")
    return None


def _problem_with_curve(arrays: Arrays) -> Fault | None:
    wrong = problem_with_arrays("curve", arrays, LAYOUT)
    if wrong is not None:
        return wrong
    curve, _ = arrays
    if curve[0] != 0 or np.abs(curve).max() > LARGEST:
        return Fault("range", f"its curve must begin with 0 and stay within {LARGEST:g}.")
    return None
