"""Limits on what clients may claim about themselves, since weights, p and K depend on it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import median_low
from typing import NamedTuple

import numpy as np

from scafflix import algorithm
from scafflix.core.errors import ScafflixError
from scafflix.core.vector import Vector
from scafflix.federate.messages import Fault, Introduction, fault_of
from scafflix.federate.sameness import compute_alike
from scafflix.methods.method import Client, Method
from scafflix.personalization.rules.choosing import COMMON, RULES

SLACK = 1 + 1e-9  # for rounding in products of constants


class Bounds(NamedTuple):
    """The limits that the operator sets."""

    weight: float = 1000.0  # largest weight of a client, as a multiple of the median
    steps: float = 1000.0  # largest expected number of local steps per round, 1/p


def problem_with_introduction(one: Introduction) -> Fault | None:
    """What is wrong with one client's introduction, regardless of the other clients."""
    wrong = fault_of(one)
    if wrong is not None:
        return wrong
    if one.rule and one.rule not in (*RULES, COMMON):
        return Fault("range", f"its rule for alpha is {one.rule!r}, which is none of ours.")
    scales = (one.gamma, one.gamma_mu, one.gamma_L)
    if any(scales) and not (one.gamma and one.gamma_L and one.gamma_mu <= SLACK * one.gamma_L):
        return Fault(
            "range",
            f"its gamma is {one.gamma:g}, its gamma_mu {one.gamma_mu:g} and its gamma_L "
            f"{one.gamma_L:g}; gamma and gamma_L must be above 0 and gamma_mu at most gamma_L, or "
            "all three must be 0.",
        )
    return None


def problem_with_change(one: Introduction, began: Introduction) -> Fault | None:
    """What a client claims differently from the start of the run, apart from rounding."""
    for name in ("alpha", "gamma", "gamma_mu", "gamma_L", "examples", "layout", "rule"):
        mine, first = getattr(one, name), getattr(began, name)
        word = isinstance(mine, str)
        same = mine == first if word else math.isclose(mine, first, rel_tol=1e-6)
        if not same:
            reason = f"its {name} is {mine}; at the start of the run it was {first}."
            return Fault("changed", reason)
    if not compute_alike(one.computes, began.computes):
        reason = "its module computes something else than at the start of the run."
        return Fault("changed", reason)
    return None


def check_alike(people: Sequence[Introduction]) -> None:
    """Either all clients have constants or none do: one without would decide for all."""
    without = [one.client for one in people if not one.gamma]
    if 0 < len(without) < len(people):
        raise ScafflixError(
            f"Client {without[0]} has no stepsize, but {len(people) - len(without)} others do; "
            "use the same model on all nodes, or leave that client out."
        )


def check_weights(people: Sequence[Introduction], method: Method, bounds: Bounds) -> None:
    """Refuse a client that would far outweigh the others, or make every step tiny."""
    gamma = np.asarray(method.gamma, float)
    nowhere, turn = Vector((np.zeros(1),)), algorithm.turn_of(0, 0, 0, len(people))

    def weight(one: Introduction, step: float) -> float:
        examples, clients = float(one.examples), float(len(people))
        client = Client(one.alpha, step, None, examples, clients, turn)
        state = method.init_client(client, nowhere, nowhere)
        sent = method.broadcast(method.init_server(nowhere))
        local = method.begin(client, state, sent)
        return float(method.upload(client, state, sent, local)[1])

    weights = [weight(one, float(step)) for one, step in zip(people, gamma, strict=True)]
    curvatures = [one.gamma_L / one.gamma if one.gamma else 0.0 for one in people]
    for what, values in (("the weight", weights), ("L =", curvatures)):
        usual = median_low(values)
        for one, value in zip(people, values, strict=True):
            if not value <= bounds.weight * usual:
                raise ScafflixError(
                    f"Client {one.client} introduced itself with alpha {one.alpha:g}, gamma "
                    f"{one.gamma:g} and gamma_L {one.gamma_L:g}, which implies {what} {value:.4g}; "
                    f"at most {bounds.weight:g} times the median {usual:.4g} is allowed; leave "
                    "that client out, or raise largest_weight."
                )


def check_steps(people: Sequence[Introduction], p: float, bounds: Bounds) -> None:
    """Refuse constants that would make every round very long."""
    if p * bounds.steps * SLACK < 1:
        one = min(people, key=lambda one: one.gamma_mu / one.gamma_L)
        steps = f"{1 / p:.6g}" if p else "endless"
        raise ScafflixError(
            f"Client {one.client} introduced itself with gamma_mu {one.gamma_mu:g} and gamma_L "
            f"{one.gamma_L:g}, which implies {steps} local steps per round; at most "
            f"{bounds.steps:g} are allowed; leave that client out, raise largest_steps, or set p."
        )
