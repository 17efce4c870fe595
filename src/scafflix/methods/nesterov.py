"""Accelerated gradient descent on the FLIX objective: Nesterov's method for strongly convex
functions (Introductory Lectures on Convex Optimization, 2004, scheme 2.2.11).

The honest rival: without local steps it too needs only a number of rounds that grows with the
square root of a condition number, that of the average L = mean_i(alpha_i^2 L_i).
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from jax.tree_util import Partial

from scafflix.core.errors import ScafflixError
from scafflix.methods.method import Method, Number, Point, Sent
from scafflix.methods.sgd import local_step
from scafflix.theory import NO_RATE, Plan, Rate, check_plan, chosen_stepsize


class Server(NamedTuple):
    """The model and the one before it."""

    x: Point
    x_before: Point


def init_server(x0: Point) -> Server:
    return Server(x0, x0)


def combine(server: Server, mean: Point, share: Number) -> Server:
    """x+ = y - gamma grad f~(y): the mean of the clients' steps from y."""
    return Server(mean, server.x)


def broadcast(beta: Number, server: Server) -> Sent:
    """y = x + beta (x - x_before)."""
    return Sent(server.x + beta * (server.x - server.x_before))


def nesterov(plan: Plan, stepsize: float | None = None) -> Method:
    """Accelerated GD with gamma = 1/L and beta = (sqrt(kappa) - 1)/(sqrt(kappa) + 1).

    f~(x^t) - f~* <= (1 - 1/sqrt(kappa))^t (f~(x^0) - f~* + (mu/2) ||x^0 - x*||^2), from which
    ||x^t - x*||^2 <= (kappa + 1) (1 - 1/sqrt(kappa))^t ||x^0 - x*||^2.
    """
    check_plan(plan)
    square = plan.alpha**2
    strength = float(np.mean(square * plan.constants.mu))
    smoothness = float(np.mean(square * plan.constants.L))
    if not strength > 0:
        raise ScafflixError("nesterov needs strongly convex functions, with L_i and mu_i known.")
    step = chosen_stepsize(stepsize, 1 / smoothness)
    kappa = 1 / (step * strength)
    proven = plan.exact and step <= (1 + 1e-12) / smoothness
    beta = (math.sqrt(kappa) - 1) / (math.sqrt(kappa) + 1)
    return Method(
        name="nesterov",
        gamma=step * square,
        limit=square / smoothness,
        p=1.0,
        rate=Rate(1 / math.sqrt(kappa), kappa + 1, 0.0) if proven else NO_RATE,
        gradient=plan.gradient,
        made_for=plan.made_for,
        init_server=Partial(init_server),
        local_step=Partial(local_step),
        combine=Partial(combine),
        broadcast=Partial(broadcast, beta),
    )
