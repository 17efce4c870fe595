"""FedAvg and fine-tuning: McMahan et al. (2017), and Yu, Bagdasaryan and Shmatikov, "Salvaging
Federated Learning by Local Adaptation" (2020), on the functions f~_i.

FedAvg finds x. At the end every client makes steps of its own from there, and takes home where
they lead: the baseline that every other personalization has to beat.
"""

from __future__ import annotations

from dataclasses import replace

from jax.tree_util import Partial

from scafflix.core.arguments import real_number, whole_number
from scafflix.methods.fedavg import fedavg
from scafflix.methods.method import Client, Method, Number, Point, State
from scafflix.theory import Plan


def tune(step: Number, client: Client, state: State, x: Point, g: Point) -> Point:
    """x_i = x_i - s grad f~_i(x_i)."""
    return x - (step * client.alpha) * g


def finetuning(
    plan: Plan,
    stepsize: float | None = None,
    p: float | None = None,
    tuning_steps: int | None = None,
    tuning_stepsize: float | None = None,
) -> Method:
    """FedAvg, and `tuning_steps` K' of every client from the final model; with 0, FedAvg.

    K' is by default 1/p, the local steps of a round, and the stepsize that of these steps: tuning
    is then another round at every client, without a communication.
    """
    base = fedavg(plan, stepsize, p)
    steps = max(1, round(1 / float(base.p))) if tuning_steps is None else tuning_steps
    steps = whole_number("tuning_steps", steps, least=0)
    usual = float((base.gamma / plan.alpha**2)[0])
    rate = usual if tuning_stepsize is None else tuning_stepsize
    rate = real_number("tuning_stepsize", rate, above=True)
    return replace(
        base,
        name="finetuning",
        settings={**base.settings, "tuning_steps": steps, "tuning_stepsize": rate},
        tune=Partial(tune, rate),
        tuning_steps=steps,
    )
