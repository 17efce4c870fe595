"""Distributed SGD on the FLIX objective: x <- x - gamma (1/n) sum_i alpha_i g_i.

With alpha below 1 it is the algorithm of Gasanov, Khaled, Horvath and Richtarik, "FLIX: A simple
and communication-efficient alternative to local methods in federated learning" (2022), with
stochastic gradients; with alpha = 1, parallel SGD.
"""

from __future__ import annotations

import numpy as np
from jax.tree_util import Partial

from scafflix.gradients import Reduced
from scafflix.methods.method import Client, Method, Point, Sent, State
from scafflix.theory import NO_RATE, Plan, Rate, check_plan, chosen_stepsize


def local_step(client: Client, state: State, sent: Sent, x: Point, g: Point) -> Point:
    """x_hat_i = x - gamma alpha_i g_i; the plain mean of these is the step of the server."""
    return x - (client.step * client.alpha) * g


def sgd(plan: Plan, stepsize: float | None = None) -> Method:
    """SGD with stepsize 1/A, for a target small enough for half of it in noise, or with a given
    one; every step communicates.

    The mean of n independent estimates satisfies Assumption 3 on f~ with

        A = mean_i(alpha_i^2 L_i) + max_i(alpha_i^2 A_i)/n over the clients with A_i > L_i
        C = sum_i(alpha_i^2 C_i)/n^2

    With reduced variance nothing is claimed: this analysis has no memory in it.
    """
    check_plan(plan)
    L, mu = plan.constants.L, plan.constants.mu
    square = plan.alpha**2
    A = np.mean(square * L) + np.max(square * np.where(plan.A > L, plan.A, 0.0)) / plan.n
    C = np.sum(square * plan.C) / plan.n**2
    strength = float(np.mean(square * mu))
    advised = 1 / A if np.isfinite(A) else (plan.gamma / square).min()
    if plan.epsilon is not None and C > 0:
        advised = min(advised, plan.epsilon * strength / (2 * square.min() * C))
    step = chosen_stepsize(stepsize, advised)
    proven = step <= (1 + 1e-12) / A and not isinstance(plan.gradient, Reduced)
    return Method(
        name="sgd",
        gamma=step * square,
        limit=square / A,
        p=1.0,
        rate=(
            Rate(step * strength, 1.0, float(square.min() * step * C / strength))
            if proven
            else NO_RATE
        ),
        gradient=plan.gradient,
        made_for=plan.made_for,
        local_step=Partial(local_step),
    )
