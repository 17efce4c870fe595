"""Scaffnew: Mishchenko, Malinovsky, Stich and Richtarik, "ProxSkip: Yes! Local Gradient Steps
Provably Lead to Communication Acceleration! Finally!" (2022), on the functions f~_i.

One stepsize for all clients, hence a plain average, and a rate that depends on the largest
smoothness and the smallest strong convexity of all the f~_i together.
"""

from __future__ import annotations

from jax.tree_util import Partial

from scafflix.methods.i_scaffnew import State, commit, controls, init_client, local_step
from scafflix.methods.method import Client, Method, Number, Point, geometric
from scafflix.theory import Plan, chosen_probability, chosen_stepsizes, probability, theorem


def upload(client: Client, state: State, x_hat: Point) -> tuple[Point, Number]:
    """x_bar = (1 / n) sum_j x_hat_j."""
    return x_hat, 1.0


def scaffnew(plan: Plan, stepsize: float | None = None, p: float | None = None) -> Method:
    """Scaffnew with the largest stepsize that suits every client, or with a given one."""
    step = chosen_stepsizes(stepsize, (plan.gamma / plan.alpha**2).min(), plan.n)
    gamma, mu = step * plan.alpha**2, plan.constants.mu
    p = chosen_probability(p, probability(gamma, mu))
    return Method(
        name="scaffnew",
        gamma=gamma,
        limit=1 / plan.A,
        p=p,
        rate=theorem(gamma, p, mu, plan.A, plan.C),
        gradient=plan.gradient,
        init_client=Partial(init_client),
        local_step=Partial(local_step),
        upload=Partial(upload),
        commit=Partial(commit, p),
        local_steps=Partial(geometric, p),
        controls=Partial(controls),
    )
