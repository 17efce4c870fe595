"""Scafflix: Algorithm 1 of Yi, Condat and Richtarik, "Explicit Personalization and Local
Training: Double Communication Acceleration in Federated Learning" (2023)."""

from __future__ import annotations

from typing import NamedTuple

from jax.tree_util import Partial

from scafflix.core.arguments import real_number
from scafflix.core.types import Floats
from scafflix.methods.method import (
    Client,
    Factor,
    Method,
    Number,
    Point,
    Sent,
    corrected,
    geometric,
    paced,
)
from scafflix.theory import (
    NO_RATE,
    Plan,
    check_plan,
    chosen_probability,
    chosen_stepsizes,
)


class State(NamedTuple):
    """The control variate; sum_i alpha_i h_i = 0 at all times."""

    h: Point


def init_client(client: Client, x0: Point, h0: Point) -> State:
    """Line 1."""
    return State(h0)


def local_step(client: Client, state: State, sent: Sent, x: Point, g: Point) -> Point:
    """Line 9: x_hat_i = x_i - (gamma_i / alpha_i) (g_i - h_i)."""
    return x - (client.gamma / client.alpha) * (g - state.h)


def upload(client: Client, state: State, sent: Sent, x_hat: Point) -> tuple[Point, Number]:
    """Line 11: x_bar = (gamma / n) sum_j (alpha_j^2 / gamma_j) x_hat_j, a weighted mean."""
    return x_hat, client.alpha**2 / client.gamma


def commit(
    factor: Factor,
    client: Client,
    state: State,
    sent: Sent,
    x_hat: Point,
    after: Sent,
    steps: Number,
) -> State:
    """Line 13: h_i = h_i + (p alpha_i / gamma_i) (x_bar - x_hat_i); another pace, another p."""
    return State(state.h + (factor(steps) * client.alpha / client.gamma) * (after.x - x_hat))


def capped_step(cap: Number, client: Client, state: State, sent: Sent, x: Point, g: Point) -> Point:
    """Line 9 with a step at most `cap` times as long as one along g_i alone."""
    return x - (client.gamma / client.alpha) * corrected(cap, g, state.h)


def controls(client: Client, state: State) -> Point:
    return state.h


def scafflix(
    plan: Plan,
    stepsize: float | Floats | None = None,
    p: float | None = None,
    pace: str | None = None,
    cap: float | None = None,
) -> Method:
    """Scafflix with the plan's individual stepsizes gamma_i, or with given ones.

    p defaults to sqrt(min_i gamma_i mu_i), which makes both terms of the rate equal; control
    variates advance by p (`expected`, Theorem 1's), by 1/K (`actual`), by the smaller
    (`cautious`), or by a fifth of that (`steady`, which the plan of a network advises). With a
    `cap`, no step is longer than that many times the step without a control variate; the plan of a
    network advises 1, and 0 is no cap.
    """
    check_plan(plan)
    gamma = chosen_stepsizes(stepsize, plan.gamma, plan.n)
    p = chosen_probability(p, plan.p_for(gamma))
    pace = plan.pace if pace is None else pace
    factor = paced(p, pace)
    cap = plan.cap if cap is None else real_number("cap", cap)
    return Method(
        name="scafflix",
        settings={"p": p, "pace": pace, "cap": cap},
        gamma=gamma,
        limit=1 / plan.A,
        p=p,
        rate=plan.guarantee(gamma, p) if pace == "expected" and not cap else NO_RATE,
        gradient=plan.gradient,
        made_for=plan.made_for,
        init_client=Partial(init_client),
        local_step=Partial(capped_step, cap) if cap else Partial(local_step),
        upload=Partial(upload),
        commit=Partial(commit, factor),
        local_steps=Partial(geometric, p),
        controls=Partial(controls),
    )
