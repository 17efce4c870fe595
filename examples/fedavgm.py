"""FedAvgM, a method of one's own: FedAvg with momentum at the server, by Hsu, Qi and Brown (2019).

scafflix run --data digits --clients 10 --model softmax --method examples/fedavgm.py:fedavgm
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jax.tree_util import Partial

from scafflix.methods.method import Client, Method, Number, Point, Sent, State, geometric
from scafflix.theory import NO_RATE, Plan, chosen_stepsize


class Server(NamedTuple):
    """The model and its momentum."""

    x: Point
    v: Point


def init_server(x0: Point) -> Server:
    return Server(x0, 0 * x0)


def local_step(client: Client, state: State, sent: Sent, x: Point, g: Point) -> Point:
    """x_hat_i = x_i - gamma grad f~_i(x_i), as in FedAvg."""
    return x - (client.step * client.alpha) * g


def combine(beta: Number, server: Server, mean: Point, share: Number) -> Server:
    """v = beta v + (mean - x), then x = x + v."""
    v = beta * server.v + (mean - server.x)
    return Server(server.x + v, v)


def fedavgm(plan: Plan, stepsize: float | None = None, beta: float = 0.5) -> Method:
    """FedAvgM with momentum `beta`; without it, FedAvg."""
    step = chosen_stepsize(stepsize, (plan.gamma / plan.alpha**2).min())
    return Method(
        name="fedavgm",
        settings={"beta": beta},  # with these, `fedavgm` makes the same method elsewhere
        gamma=step * plan.alpha**2,
        limit=np.full(plan.n, np.inf),  # no theory to exceed
        p=plan.p,
        rate=NO_RATE,  # no guarantee, hence no certificate
        gradient=plan.gradient,
        made_for=plan.made_for,  # so that it is refused on another problem
        init_server=Partial(init_server),
        local_step=Partial(local_step),
        combine=Partial(combine, beta),  # a leaf: another beta is no other program
        local_steps=Partial(geometric, plan.p),  # K, the local steps of a round
    )
