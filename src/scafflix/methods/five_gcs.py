"""5GCS: Grudzien, Malinovsky and Richtarik, "Can 5th Generation Local Training Methods Support
Client Sampling? Yes!" (2022), on the functions f~_i.

Every client keeps a dual variable u_i, an estimate of grad f~_i at the solution, and the server
their mean. A client of the cohort looks for the minimizer of
f~_i(y) - <u_i, y> + (tau/2) ||y - x_hat||^2 by gradient steps, and u_i becomes the gradient of f~_i
where they end. What the others keep is still right, so that a round of a few clients is enough.

The paper moves strong convexity from the f~_i to the server; here it stays where it is, which needs
no number of all clients in a local step. Each client has its own stepsize.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from jax.tree_util import Partial

from scafflix.core.arguments import real_number, whole_number
from scafflix.core.errors import ScafflixError
from scafflix.core.types import Floats
from scafflix.methods.method import Client, Method, Number, Point, Sent, every_time
from scafflix.personalization.mixing import mix
from scafflix.theory import (
    NO_RATE,
    Plan,
    Rate,
    check_plan,
    chosen_probability,
    chosen_stepsizes,
)


class State(NamedTuple):
    """The dual variable of a client, in the scale of f~_i."""

    u: Point


class Server(NamedTuple):
    """The model, and the mean of all clients' dual variables."""

    x: Point
    u: Point


class Local(NamedTuple):
    """Where a client is, and the gradient of f~_i where it was a step ago."""

    y: Point
    u: Point


def init_client(client: Client, x0: Point, h0: Point) -> State:
    return State(client.alpha * h0)


def init_server(x0: Point) -> Server:
    """u = 0, the mean of dual variables that sum to 0."""
    return Server(x0, 0 * x0)


def primal_step(tau: Number, server: Server) -> Point:
    """x_hat = x - gamma u, with gamma = 1/(2 tau)."""
    return server.x - (0.5 / tau) * server.u


def broadcast(tau: Number, server: Server) -> Sent:
    return Sent(primal_step(tau, server))


def begin(client: Client, state: State, sent: Sent) -> Local:
    return Local(sent.x, state.u)


def asks(client: Client, state: State, sent: Sent, local: Local) -> Point:
    return mix(client.alpha, local.y, client.x_star)


def local_step(
    tau: Number, client: Client, state: State, sent: Sent, local: Local, g: Point
) -> Local:
    """y = y - (grad f~_i(y) - u_i + tau (y - x_hat)) / (L~_i + tau), with L~_i = 1/s_i; of the last
    step of a round only the gradient counts."""
    u = client.alpha * g
    step = client.step / (1 + client.step * tau)
    return Local(local.y - step * (u - state.u + tau * (local.y - sent.x)), u)


def upload(client: Client, state: State, sent: Sent, local: Local) -> tuple[Point, Number]:
    """u_i+ - u_i, with u_i+ = grad f~_i(y)."""
    return local.u - state.u, 1.0


def combine(tau: Number, server: Server, mean: Point, share: Number) -> Server:
    """x = x_hat - gamma mean_S(u_i+ - u_i), and u = u + (|S| / n) mean_S(u_i+ - u_i)."""
    return Server(primal_step(tau, server) - (0.5 / tau) * mean, server.u + share * mean)


def commit(
    client: Client, state: State, sent: Sent, local: Local, after: Sent, steps: Number
) -> State:
    return State(local.u)


def controls(client: Client, state: State) -> Point:
    return (1 / client.alpha) * state.u


def gradients_needed(ratio: float) -> int:
    """That end with ||grad|| <= ||u_i+ - u_i|| / (8 max(1, sqrt(L/tau))), where ratio = L/tau: each
    gradient step divides it by 1 + tau/L, and the last gradient makes no step."""
    aim = 1 / (8 * max(1.0, math.sqrt(ratio)))
    return 1 + math.ceil(math.log((1 + ratio + ratio * aim) / aim) / math.log1p(1 / ratio))


def guarantee(L: Floats, mu: Floats, tau: float, cohort: int, p: float) -> Rate:
    """With gamma = 1/(2 tau), mu'_i = L_i mu_i/(L_i + mu_i) and m = mean_i 1/(1/mu'_i + 10/tau), a
    round of c of n clients multiplies the expectation of

        (1 + 1.5 gamma m) ||x - x*||^2 + gamma (n/c) mean_i W_i ||u_i - u_i*||^2
        W_i = 1.5/(L_i + mu_i) + 1/tau

    by at most the larger of 1/(1 + 1.5 gamma m) and 1 - (c/n) min_i 1.5/(1.5 + (L_i + mu_i)/tau).
    That is for c clients or more; Psi stays under it times the ratio of the two, at its largest
    and at its smallest.
    """
    n, gamma = len(L), 1 / (2 * tau)
    pull = 1.5 * gamma * float(np.mean(1 / (1 / mu + 1 / L + 10 / tau)))
    slowest = float(np.min(1.5 / (1.5 + (L + mu) / tau)))
    shrinks = max(1 / (1 + pull), 1 - cohort / n * slowest)
    W = 1.5 / (L + mu) + 1 / tau
    # Psi / gamma_min over that function, term by term
    ratios = [np.array([np.mean(L) / (1 + pull)])]
    ratios += [1 / (L * p**2 * gamma * (n / c) * W) for c in (cohort, n)]
    joined = np.concatenate(ratios)
    return Rate(1 - shrinks**p, float(joined.max() / joined.min()), 0.0, cohort)


def five_gcs(
    plan: Plan,
    stepsize: float | Floats | None = None,
    p: float | None = None,
    cohort: int | None = None,
    tau: float | None = None,
) -> Method:
    """5GCS for rounds of `cohort` clients (default: all) or more, with K = 1/p gradients in each.

    By default tau makes both terms of the guarantee equal, which for few clients a round is about
    sqrt(n L mu / (2 c)), with L the largest and mu the mean of those of the f~_i; a round then
    needs about (L/tau) log(L/tau) gradients, and there are as many rounds as n/c + sqrt(n L/(c mu))
    times a logarithm. With fewer gradients a round nothing is guaranteed, and tau is at least L/K,
    with which quadratics are still stable; where no constants are known K is the plan's 1/p.
    """
    check_plan(plan)
    square, n = plan.alpha**2, plan.n
    steps = chosen_stepsizes(stepsize, plan.gamma / square, n)
    if isinstance(cohort, float) and cohort.is_integer():  # as it comes out of a message
        cohort = int(cohort)
    cohort = n if cohort is None else whole_number("cohort", cohort, least=1)
    if p is not None or not plan.known:
        p = 1 / round(1 / chosen_probability(p, plan.p))
    if tau is None:
        if 1 < n < cohort:
            raise ScafflixError(
                f"cohort is {cohort}; it must be at most {n}, the clients that take part."
            )
        L = float((1 / steps).max())
        mu = float(np.mean(square * plan.constants.mu)) or plan.p**2 * L
        mu *= n / cohort
        tau = max((1.5 * mu + math.sqrt((1.5 * mu) ** 2 + 8 * mu * L)) / 4, L * (p or 0))
    tau = real_number("tau", tau, above=True)
    needed = gradients_needed(float((1 / (steps * tau)).max()))
    p = 1 / needed if p is None else p
    within = (steps * square <= (1 + 1e-12) / plan.A).all()
    proven = plan.exact and within and (plan.constants.mu > 0).all() and round(1 / p) >= needed
    return Method(
        name="five_gcs",
        settings={"p": p, "cohort": cohort, "tau": tau},
        gamma=steps * square,
        limit=1 / plan.A,
        p=p,
        rate=guarantee(1 / steps, square * plan.constants.mu, tau, cohort, p)
        if proven
        else NO_RATE,
        gradient=plan.gradient,
        made_for=plan.made_for,
        init_client=Partial(init_client),
        init_server=Partial(init_server),
        broadcast=Partial(broadcast, tau),
        begin=Partial(begin),
        asks=Partial(asks),
        local_step=Partial(local_step, tau),
        upload=Partial(upload),
        combine=Partial(combine, tau),
        commit=Partial(commit),
        local_steps=Partial(every_time, p),
        controls=Partial(controls),
    )
