"""i-Scaffnew: Algorithm 2 of Yi, Condat and Richtarik (2023), on the functions f~_i.

Its gradients are alpha_i g_i and its stepsizes gamma_i / alpha_i^2; its control variates are
alpha_i times those of Scafflix. The two make the same points.
"""

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
    """The control variate; sum_i h_i = 0 at all times."""

    h: Point


def init_client(client: Client, x0: Point, h0: Point) -> State:
    """Line 1."""
    return State(client.alpha * h0)


def local_step(client: Client, state: State, sent: Sent, x: Point, g: Point) -> Point:
    """Line 7: x_hat_i = x_i - gamma_i (g_i - h_i)."""
    return x - client.step * (client.alpha * g - state.h)


def upload(client: Client, state: State, sent: Sent, x_hat: Point) -> tuple[Point, Number]:
    """Line 9: x_bar = (gamma / n) sum_j (1 / gamma_j) x_hat_j, a weighted mean."""
    return x_hat, 1 / client.step


def commit(
    factor: Factor,
    client: Client,
    state: State,
    sent: Sent,
    x_hat: Point,
    after: Sent,
    steps: Number,
) -> State:
    """Line 11: h_i = h_i + (p / gamma_i) (x_bar - x_hat_i), or with 1/K for p."""
    return State(state.h + (factor(steps) / client.step) * (after.x - x_hat))


def capped_step(cap: Number, client: Client, state: State, sent: Sent, x: Point, g: Point) -> Point:
    """Line 7 with a step at most `cap` times as long as one along g_i alone."""
    return x - client.step * corrected(cap, client.alpha * g, state.h)


def controls(client: Client, state: State) -> Point:
    return (1 / client.alpha) * state.h


def i_scaffnew(
    plan: Plan,
    stepsize: float | Floats | None = None,
    p: float | None = None,
    pace: str | None = None,
    cap: float | None = None,
) -> Method:
    """i-Scaffnew with the plan's individual stepsizes, or with given stepsizes on the f~_i; pace
    and cap are as in Scafflix."""
    check_plan(plan)
    step = chosen_stepsizes(stepsize, plan.gamma / plan.alpha**2, plan.n)
    gamma = step * plan.alpha**2
    p = chosen_probability(p, plan.p_for(gamma))
    pace = plan.pace if pace is None else pace
    factor = paced(p, pace)
    cap = plan.cap if cap is None else real_number("cap", cap)
    return Method(
        name="i_scaffnew",
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
