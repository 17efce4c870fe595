"""GradSkip: Maranjyan, Safaryan and Richtarik, "GradSkip: Communication-Accelerated Local Gradient
Methods with Better Computational Complexity" (2022), Algorithm 1, on the functions f~_i.

Scaffnew in which a client that is well conditioned need not make all the steps of a round: in each
step a coin of its own tells it, with probability 1 - q_i, to take the gradient as its control
variate and to stay where it is. Nothing changes there in later steps of the round, so that it stops
computing gradients. The rounds are those of Scaffnew.

The paper has one stepsize; here each client has its own and weighs 1/s_i, as in i-Scaffnew. Its
proof goes through client by client.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jax.tree_util import Partial

from scafflix.core.types import Floats
from scafflix.methods.i_scaffnew import State, controls, init_client
from scafflix.methods.method import Client, Method, Number, Point, Sent, geometric
from scafflix.personalization.mixing import mix
from scafflix.theory import (
    Plan,
    check_plan,
    chosen_probability,
    chosen_stepsizes,
)

NEVER = 1e-15  # the least chance of stopping in a step that can be drawn


class Local(NamedTuple):
    """Where a client is, and the control variate that it will send: h_i until it stops."""

    x: Point
    h: Point


def begin(client: Client, state: State, sent: Sent) -> Local:
    return Local(sent.x, state.h)


def asks(client: Client, state: State, sent: Sent, local: Local) -> Point:
    return mix(client.alpha, local.x, client.x_star)


def local_step(client: Client, state: State, sent: Sent, local: Local, g: Point) -> Local:
    """While its coin shows 1: h_hat_i = h_i and x_hat_i = x_i - gamma_i (g_i - h_hat_i)."""
    return Local(local.x - client.step * (client.alpha * g - local.h), local.h)


def stop(client: Client, state: State, sent: Sent, local: Local, g: Point) -> Local:
    """When it shows 0: h_hat_i = g_i, hence x_hat_i = x_i, now and in later steps."""
    return Local(local.x, client.alpha * g)


def upload(
    p: Number, client: Client, state: State, sent: Sent, local: Local
) -> tuple[Point, Number]:
    """x_bar is the mean of x_hat_j - (gamma_j / p) h_hat_j; what the h_j, which sum to 0,
    contribute to it is left out, so that it is right for a part of the clients as well."""
    return local.x - (client.step / p) * (local.h - state.h), 1 / client.step


def commit(
    p: Number, client: Client, state: State, sent: Sent, local: Local, after: Sent, steps: Number
) -> State:
    """h_i = h_hat_i + (p / gamma_i) (x_bar - x_hat_i)."""
    return State(local.h + (p / client.step) * (after.x - local.x))


def own_steps(q: Floats, clients: Client, steps: Number, uniform: Number) -> Number:
    """The step in which the coin of each client shows 0 for the first time."""
    q = np.clip(np.asarray(q, float), np.finfo(float).tiny, 1 - NEVER)
    return np.maximum(1, np.ceil(np.log(uniform) / np.log(q)))


def gradskip(plan: Plan, stepsize: float | Floats | None = None, p: float | None = None) -> Method:
    """GradSkip with the stepsizes and the q_i of its theorem, or with given stepsizes.

    For gamma_i <= p^2 / (L_i (1 - q_i (1 - p^2))), Psi shrinks in each step by the factor 1 - zeta
    with zeta = min_i min(gamma_i mu_i, 1 - q_i (1 - p^2)), which is no smaller than Scaffnew's.

    By default gamma_i = p^2 / mu_i, at most 1/L_i: smaller steps where a client is well
    conditioned, which cost nothing, since the worst client sets the pace. With any stepsizes q_i is
    the smallest that the condition allows: (1 - 1/kappa_i) / (1 - 1/kappa_max) with the default, as
    in the paper, and 1 with gamma_i = 1/L_i, which is i-Scaffnew. By default client i computes at
    most kappa_i and at most 1/p gradients a round on average, 1 / (1 - q_i (1 - p)) to be exact.
    Where gradients are stochastic or no constants are known nobody skips.
    """
    check_plan(plan)
    mu, square = plan.constants.mu, plan.alpha**2
    p = chosen_probability(p, plan.p_for(plan.gamma))
    skips = plan.exact and plan.known and (mu > 0).all()
    advised = np.minimum(plan.gamma, p**2 / mu) if skips else plan.gamma
    gamma = chosen_stepsizes(stepsize, advised / square, plan.n) * square
    q = np.ones(plan.n)
    if skips:
        q = np.clip((1 - p**2 / (gamma * plan.A)) / max(1 - p**2, NEVER), 0, 1)
    return Method(
        name="gradskip",
        settings={"p": p},
        gamma=gamma,
        limit=1 / plan.A,
        p=p,
        rate=plan.guarantee(gamma, p),
        gradient=plan.gradient,
        made_for=plan.made_for,
        init_client=Partial(init_client),
        begin=Partial(begin),
        asks=Partial(asks),
        local_step=Partial(local_step),
        upload=Partial(upload, p),
        commit=Partial(commit, p),
        local_steps=Partial(geometric, p),
        own_steps=Partial(own_steps, q),
        stop=Partial(stop),
        controls=Partial(controls),
    )
