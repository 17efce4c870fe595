"""Scaffnew: Mishchenko, Malinovsky, Stich and Richtarik, "ProxSkip: Yes! Local Gradient Steps
Provably Lead to Communication Acceleration! Finally!" (2022), on the functions f~_i.

One stepsize for all clients, hence a plain average, and a rate that depends on the largest
smoothness and the smallest strong convexity of all the f~_i together.
"""

from __future__ import annotations

from dataclasses import replace

from jax.tree_util import Partial

from scafflix.methods.i_scaffnew import State, i_scaffnew
from scafflix.methods.method import Client, Method, Number, Point, Sent
from scafflix.theory import Plan, check_plan, chosen_stepsize


def upload(client: Client, state: State, sent: Sent, x_hat: Point) -> tuple[Point, Number]:
    """x_bar = (1 / n) sum_j x_hat_j."""
    return x_hat, 1.0


def scaffnew(
    plan: Plan,
    stepsize: float | None = None,
    p: float | None = None,
    pace: str | None = None,
    cap: float | None = None,
) -> Method:
    """i-Scaffnew with one stepsize: the largest that suits every client, or a given one."""
    check_plan(plan)
    common = chosen_stepsize(stepsize, (plan.gamma / plan.alpha**2).min())
    made = i_scaffnew(plan, common, p, pace, cap)
    return replace(made, name="scaffnew", upload=Partial(upload))
