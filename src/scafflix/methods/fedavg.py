"""FedAvg: McMahan, Moore, Ramage, Hampson and Aguera y Arcas (2017), on the functions f~_i.

Local gradient steps and a plain average, without control variates: where clients differ it
stops short of the optimum, more so when they take more local steps.
"""

from __future__ import annotations

import numpy as np
from jax.tree_util import Partial

from scafflix.methods.method import Client, Method, Point, Sent, State, geometric
from scafflix.theory import NO_RATE, Plan, check_plan, chosen_probability, chosen_stepsize


def local_step(client: Client, state: State, sent: Sent, x: Point, g: Point) -> Point:
    """x_hat_i = x_i - gamma grad f~_i(x_i)."""
    return x - (client.step * client.alpha) * g


def fedavg(plan: Plan, stepsize: float | None = None, p: float | None = None) -> Method:
    """FedAvg with the largest stepsize that suits every client, or with a given one.

    The number of local steps is geometric with the plan's p, as in Scafflix: with the same seed
    both make the same steps between the same communications.
    """
    check_plan(plan)
    step = chosen_stepsize(stepsize, (plan.gamma / plan.alpha**2).min())
    p = chosen_probability(p, plan.p)
    return Method(
        name="fedavg",
        settings={"p": p},
        gamma=step * plan.alpha**2,
        limit=np.full(plan.n, np.inf),  # no theory to exceed
        p=p,
        rate=NO_RATE,
        gradient=plan.gradient,
        made_for=plan.made_for,
        local_step=Partial(local_step),
        local_steps=Partial(geometric, p),
    )
