"""Every client its alpha_i, once x is there."""

from __future__ import annotations

import warnings
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from scafflix.core.errors import ScafflixWarning
from scafflix.core.types import Floats
from scafflix.personalization.rules import blending, james_stein, loo, validation
from scafflix.personalization.rules.contract import GRID, Decision, Evidence, Rule
from scafflix.personalization.rules.influence import LARGEST
from scafflix.problems.problem import Problem

# all of one class: with n of them another may still have a share of 3/n (the rule of three)
FEW = 30
ONE_CLASS = "one class: it judges by that alone"
NAMED = 3  # clients that a warning names
_TAUGHT = "it takes what the others' mean curve says"
FEW_OF_ONE_CLASS = f"fewer than {FEW} examples, all of one class: {_TAUGHT}"
_ONE_EXAMPLE = "too few examples to leave one out"

LOO = Rule("loo", loo.check, f"{_ONE_EXAMPLE}: {_TAUGHT}", loo.evidence, blending.blended_with)
VALIDATION = Rule(
    "validation",
    validation.check,
    f"no validation examples: {_TAUGHT}",
    validation.evidence,
    blending.blended_with,
)
JAMES_STEIN = Rule(
    "james-stein",
    james_stein.check,
    "one example: it keeps its own model",
    james_stein.evidence,
    james_stein.decide,
    consults=False,
)
RULES = {rule.name: rule for rule in (LOO, VALIDATION, JAMES_STEIN)}
COMMON = "common"
GIVEN = "given"  # no rule


class Choice(NamedTuple):
    """What every client chose, by what, and what it expects of it."""

    rule: str
    alpha: Floats  # [clients]
    gain: Floats  # [clients], of the loss: what alpha_i is expected to save, against alpha = 0
    own: Floats  # [clients, alphas], each client's own curve; NaN of one that knows nothing
    error: Floats | None  # [clients, alphas], the standard error of its own, counted from alpha = 0
    expected: Floats  # [clients, alphas], the curve that it went by, counted from alpha = 0
    note: NDArray[np.str_]  # [clients], where something was missing: what, and what was done

    @property
    def curves(self) -> dict[str, Floats]:
        """The curves, and at which alpha their points are."""
        error = {} if self.error is None else {"error": self.error}
        return {"alpha": GRID, "own": self.own, **error, "expected": self.expected}


def consults(name: str) -> bool:
    """Whether clients tell each other something before they decide by this rule."""
    return name == COMMON or RULES[name].consults


def rule_for(word: str, problem: Problem, clients: int | None = None) -> Rule:
    """The rule that a word names on this problem; refuse one that cannot serve it.

    `auto` is leave-one-out; where there is no Hessian, or none that fits, the validation part. A
    problem may hold some of the clients that x was trained by: then say how many these were.
    """
    if word == "auto":
        word = "loo" if fits(problem) or problem.federation.validation is None else "validation"
        word = word if problem.linear else "validation"
    judge = ("loo" if problem.linear else "validation") if word == COMMON else word
    rule = RULES[judge]
    rule.check(problem)
    if judge == "loo" and clients is not None:
        rule = rule._replace(evidence=partial(loo.evidence, share=1 / clients))
    return common(rule) if word == COMMON else rule


def common(judge: Rule) -> Rule:
    """One alpha for all, by the curves of this rule."""
    return judge._replace(name=COMMON, decide=blending.pooled)


def fits(problem: Problem) -> bool:
    """Whether leave-one-out can be had at a bearable cost."""
    return problem.linear and problem.size <= LARGEST


def choose(problem: Problem, word: str, x_star: Any, x: Any) -> Choice:
    """alpha_i of every client for the mixture of its x_i* with this x."""
    return chosen_by(rule_for(word, problem), problem, x_star, x)


def chosen_by(rule: Rule, problem: Problem, x_star: Any, x: Any) -> Choice:
    """The same by a rule that serves the problem."""
    evidence, note = weighed(problem, rule, rule.evidence(problem, x_star, x))
    _warn(problem, rule, note)
    return choice(rule.name, evidence, rule.decide(evidence, blending.told(evidence)), note)


def weighed(problem: Problem, rule: Rule, evidence: Evidence) -> tuple[Evidence, NDArray[np.str_]]:
    """Without what a few examples of one class say, and what each client lacked."""
    return sifted(rule, evidence, _one_class(problem), problem.federation.train.counts)


def sifted(
    rule: Rule, evidence: Evidence, one: NDArray[np.bool_], counts: NDArray[np.int64]
) -> tuple[Evidence, NDArray[np.str_]]:
    """The same for clients with so many training examples, those of `one` all of one class."""
    few = one & (counts < FEW) & (evidence.alpha is None)
    note = np.where(one, np.where(few, FEW_OF_ONE_CLASS, ONE_CLASS), "")
    note = np.where(evidence.known, note, rule.ignorant)
    return evidence._replace(curves=np.where(few[:, None], np.nan, evidence.curves)), note


def choice(rule: str, evidence: Evidence, made: Decision, note: NDArray[np.str_]) -> Choice:
    """A decision, and what it was expected to gain."""
    expected = made.curves - made.curves[:, :1]
    at = [np.interp(a, GRID, curve) for a, curve in zip(made.alpha, expected, strict=True)]
    gain = np.where(made.alpha > 0, -np.array(at), 0.0)
    return Choice(rule, made.alpha, gain, evidence.curves, evidence.error, expected, note)


def given(alpha: Floats) -> Choice:
    """What nobody chose: no curve says anything of it."""
    nothing, clients = np.full((len(alpha), len(GRID)), np.nan), len(alpha)
    note = np.full(clients, "", np.str_)
    return Choice(GIVEN, alpha, np.full(clients, np.nan), nothing, None, nothing, note)


def _one_class(problem: Problem) -> NDArray[np.bool_]:
    """The clients whose training examples are all of one class."""
    train, labels = problem.federation.train, problem.labels["train"]
    if problem.linear and not problem.targets.classes:
        return np.zeros(problem.n, bool)
    flat = labels.reshape(len(labels), -1)
    first = train.offsets[:-1]
    low = np.minimum.reduceat(flat.min(axis=1), first)
    return np.asarray(low == np.maximum.reduceat(flat.max(axis=1), first))


def _warn(problem: Problem, rule: Rule, note: NDArray[np.str_]) -> None:
    """One sentence about the clients that lacked something."""
    kinds = [kind for kind in dict.fromkeys(note.tolist()) if kind]
    if not kinds:
        return
    words = []
    for kind in kinds:
        names = [problem.federation.clients[i] for i in np.flatnonzero(note == kind)]
        shown = ", ".join(names[:NAMED]) + (", ..." if len(names) > NAMED else "")
        words.append(f"{len(names)} of {problem.n} clients ({shown}) had {kind}")
    warnings.warn(f"alpha by {rule.name}: {'; '.join(words)}.", ScafflixWarning, stacklevel=2)
