"""FedProx, a method of one's own: Li, Sahu, Zaheer, Sanjabi, Talwalkar and Smith (2020).

scafflix run --data digits --clients 10 --model softmax --method examples/fedprox.py:fedprox
"""

from __future__ import annotations

import numpy as np
from jax.tree_util import Partial

from scafflix.methods.method import Client, Method, Number, Point, Sent, State, geometric
from scafflix.theory import NO_RATE, Plan, chosen_stepsize


def local_step(pull: Number, client: Client, state: State, sent: Sent, x: Point, g: Point) -> Point:
    """x_hat_i = x_i - gamma (grad f~_i(x_i) + lambda (x_i - x)), near the server's x."""
    return x - client.step * (client.alpha * g + pull * (x - sent.x))


def fedprox(plan: Plan, stepsize: float | None = None, pull: float = 0.1) -> Method:
    """FedProx with lambda = `pull`; without it, FedAvg."""
    step = chosen_stepsize(stepsize, (plan.gamma / plan.alpha**2).min())
    return Method(
        name="fedprox",
        settings={"pull": pull},  # with these, `fedprox` makes the same method elsewhere
        gamma=step * plan.alpha**2,
        limit=np.full(plan.n, np.inf),  # no theory to exceed
        p=plan.p,
        rate=NO_RATE,  # no guarantee, hence no certificate
        gradient=plan.gradient,
        made_for=plan.made_for,  # so that it is refused on another problem
        local_step=Partial(local_step, pull),  # a leaf: another lambda is no other program
        local_steps=Partial(geometric, plan.p),  # K, the local steps of a round
    )
