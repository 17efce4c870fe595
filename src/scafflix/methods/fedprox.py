"""FedProx: Li, Sahu, Zaheer, Sanjabi, Talwalkar and Smith, "Federated Optimization in
Heterogeneous Networks" (2020), on the functions f~_i.

FedAvg with a pull towards the model that the server sent: clients run off less far, and get less
far. Like FedAvg it stops short of the optimum where clients differ.
"""

from __future__ import annotations

from dataclasses import replace

from jax.tree_util import Partial

from scafflix.core.arguments import real_number
from scafflix.methods.fedavg import fedavg
from scafflix.methods.method import Client, Method, Number, Point, Sent, State
from scafflix.theory import Plan, check_plan, chosen_stepsize


def local_step(pull: Number, client: Client, state: State, sent: Sent, x: Point, g: Point) -> Point:
    """x_hat_i = x_i - gamma (grad f~_i(x_i) + lambda (x_i - x)): a step on the proximal objective
    f~_i + (lambda / 2) ||. - x||^2, with x from the server."""
    return x - client.step * (client.alpha * g + pull * (x - sent.x))


def fedprox(
    plan: Plan, stepsize: float | None = None, p: float | None = None, pull: float = 0.1
) -> Method:
    """FedProx with lambda = `pull`; with 0, FedAvg.

    The stepsize is by default the largest that suits every proximal objective, 1/(L + lambda) with
    1/L that of FedAvg; where no constants are known, that of FedAvg. The paper solves its local
    problems up to some accuracy; here the number of local steps is geometric, as in FedAvg. The
    paper tries lambda from 0.001 to 1; the curvature of f~_i is alpha_i^2 times that of f_i, so a
    small alpha wants a small lambda.
    """
    check_plan(plan)
    pull = real_number("pull", pull)
    largest = (plan.gamma / plan.alpha**2).min()
    advised = largest / (1 + pull * largest) if plan.known else largest
    step = chosen_stepsize(stepsize, advised)
    made = fedavg(plan, step, p)
    return replace(
        made,
        name="fedprox",
        settings={**made.settings, "pull": pull},
        local_step=Partial(local_step, pull),
    )
