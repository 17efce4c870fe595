"""LoCoDL: Condat, Maranjyan and Richtarik, "LoCoDL: Communication-Efficient Distributed Learning
with Local Training and Compression" (2025), on the functions f~_i and with individual stepsizes.

The objective is split: f~_i = phi_i + (sigma/2s_i) ||.||^2, with s_i the stepsize on f~_i. Client i
steps on phi_i from a point x_i of its own; y steps on g = (sigma/2s_y) ||.||^2, where
1/s_y = mean_i 1/s_i, at the server and with the same numbers at every client. What travels up is
x_i - y, compressed by any unbiased compressor: it tends to 0, and so does the compressor's error.

The weights 1/s_i, as i-Scaffnew has them, are ours. In their metric one step is analysed as with
equal ones, with omega_av = omega max_i(1/s_i) / sum_i(1/s_i), which for equal ones is omega/n.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from jax.tree_util import Partial

from scafflix.core.arguments import real_number
from scafflix.core.errors import ScafflixError
from scafflix.core.types import Floats
from scafflix.methods.compressors import Identity, compressor_of
from scafflix.methods.method import Client, Method, Number, Point, geometric
from scafflix.personalization.mixing import mix
from scafflix.theory import NO_RATE, Plan, Rate, check_plan, chosen_probability, chosen_stepsizes


class State(NamedTuple):
    """A client's own point, and s_i u_i; sum_i u_i/n + v = 0 while everybody takes part."""

    x: Point
    su: Point


class Server(NamedTuple):
    """y, which is the model, and s_y v."""

    x: Point
    sv: Point


class Local(NamedTuple):
    """x_i, and y as it is at the same step."""

    x: Point
    y: Point


def init_client(sigma: Number, client: Client, x0: Point, h0: Point) -> State:
    """u_i = alpha_i h_i - (sigma/s_i) x: what is known of grad phi_i at the optimum."""
    return State(x0, (client.step * client.alpha) * h0 - sigma * x0)


def init_server(sigma: Number, x0: Point) -> Server:
    """v = (sigma/s_y) y = grad g(y), so that mean_i u_i + v = 0 where sum_i alpha_i h_i = 0."""
    return Server(x0, sigma * x0)


def broadcast(server: Server) -> Server:
    return server


def begin(client: Client, state: State, sent: Server) -> Local:
    return Local(state.x, sent.x)


def asks(client: Client, state: State, sent: Server, local: Local) -> Point:
    return mix(client.alpha, local.x, client.x_star)


def local_step(
    sigma: Number, client: Client, state: State, sent: Server, local: Local, g: Point
) -> Local:
    """x_hat_i = x_i - s_i (grad phi_i(x_i) - u_i) and y_hat = y - s_y (grad g(y) - v)."""
    step = (client.step * client.alpha) * g - sigma * local.x - state.su
    return Local(local.x - step, local.y - (sigma * local.y - sent.sv))


def upload(client: Client, state: State, sent: Server, local: Local) -> tuple[Point, Number]:
    """d_i = C_i(x_hat_i - y_hat), which the compressor makes; it weighs 1/s_i."""
    return local.x - local.y, 1 / client.step


def server_steps(sigma: Number, server: Server, steps: Number) -> Server:
    """K times y = y - s_y (grad g(y) - v), at once: s_y v/sigma is where it leads."""
    limit = (1 / sigma) * server.sv
    return Server(limit + (1 - sigma) ** steps * (server.x - limit), server.sv)


def combine(rho: Number, eta: Number, server: Server, mean: Point, share: Number) -> Server:
    """d = (1/2) weighted mean of the d_i; y = y_hat + rho d; s_y v = s_y v + eta d."""
    d = 0.5 * mean
    return Server(server.x + rho * d, server.sv + (share * eta) * d)


def commit(
    compressor: Identity,
    rho: Number,
    eta: Number,
    client: Client,
    state: State,
    sent: Server,
    local: Local,
    after: Server,
    steps: Number,
) -> State:
    """x_i = (1 - rho) x_hat_i + rho (y_hat + d) and s_i u_i = s_i u_i + eta (d - d_i)."""
    assert client.turn is not None
    d = (1 / rho) * (after.x - local.y)
    d_i = compressor.apply(client.turn, local.x - local.y)  # as it was sent
    x = local.x + rho * (local.y + d - local.x)
    return State(x, state.su + eta * (d - d_i))


def controls(sigma: Number, client: Client, state: State) -> Point:
    """alpha_i h_i = u_i + (sigma/s_i) x_i, which tends to grad f~_i at the optimum."""
    return (1 / (client.step * client.alpha)) * (state.su + sigma * state.x)


def guarantee(c: Number, p: Number, sigma: Number, omega: Number, rho: Number) -> Rate:
    """What follows for Theorem 1's Psi from the contraction of

        Psi_L = mean (1/s_i) ||x_i - x*||^2 + (1/s_y) ||y - x*||^2
              + (mean s_i ||u_i - u_i*||^2 + s_y ||v - v*||^2) / (p eta)

    by 1 - zeta, where c is the least s_i mu(phi_i), at most sigma. Psi/gamma_min is
    (1/s_y) ||y - x*||^2 + mean s_i ||e_i||^2 / p^2 with e_i the error of alpha_i h_i, that is
    e_i = (u_i - u_i*) + (sigma/s_i) (x_i - x*). With ||a + b||^2 <= 2 ||a||^2 + 2 ||b||^2 it is at
    most `after` times Psi_L; and at the start, where x_i = y and s_y v = sigma y, Psi_L is at most
    `before` times it.
    """
    eta = p * rho / (1 + 2 * omega)
    zeta = min(2 * c - c**2, p * eta)
    after = max(1.0, 2 * sigma**2 / p**2, 2 * eta / p)
    before = max(2 + 3 * sigma**2 / (p * eta), 2 * p / eta)
    return Rate(zeta, after * before)


def locodl(
    plan: Plan,
    stepsize: float | Floats | None = None,
    p: float | None = None,
    compressor: str = "natural",
    omega: float | None = None,
    sigma: float | None = None,
    rho: float | None = None,
) -> Method:
    """LoCoDL with the plan's individual stepsizes, or with given ones on the f~_i.

    The compressor is identity, natural, rand_k:K or dithering:LEVELS. `omega` is needed for one
    whose variance depends on the size of the model. By that analysis both terms of

        E Psi^t <= max((1 - sigma)^2, 1 - p^2 rho / (1 + 2 omega))^t Psi^0

    are equal with the p that is chosen here. sigma is half of min_i gamma_i mu_i, which leaves as
    much strong convexity to every phi_i; rho is 1/(1 + omega_av), and eta = p rho/(1 + 2 omega).
    This Psi also has the x_i and v in it: Theorem 1's stays under the same rate after a factor. The
    analysis is of rounds in which all clients take part.
    """
    check_plan(plan)
    step = chosen_stepsizes(stepsize, plan.gamma / plan.alpha**2, plan.n)
    gamma = step * plan.alpha**2
    made = compressor_of(compressor)
    omega = real_number("omega", made.omega() if omega is None else omega)
    sigma = real_number(
        "sigma", plan.p_for(gamma) ** 2 / 2 if sigma is None else sigma, above=True, below=1
    )
    largest = 1 / (1 + omega * float((1 / step).max() / (1 / step).sum()))
    rho = largest if rho is None else rho
    if not 0 < real_number("rho", rho) <= 1:
        raise ScafflixError(f"rho is {rho:g}; it must be above 0 and at most 1.")
    advised = math.sqrt((2 * sigma - sigma**2) * (1 + 2 * omega) / rho)
    p = chosen_probability(p, min(1.0, advised))
    eta = p * rho / (1 + 2 * omega)
    rest = float((gamma * plan.constants.mu).min()) - sigma  # of s_i mu~_i, left to phi_i
    within = (gamma <= (1 + 1e-12) / plan.A).all() and rho <= (1 + 1e-12) * largest
    proven = plan.exact and within and rest > 0
    return Method(
        name="locodl",
        settings={
            "p": p,
            "compressor": compressor,
            "omega": omega,
            "sigma": sigma,
            "rho": rho,
        },
        gamma=gamma,
        limit=1 / plan.A,
        p=p,
        rate=guarantee(min(rest, sigma), p, sigma, omega, rho) if proven else NO_RATE,
        gradient=plan.gradient,
        made_for=plan.made_for,
        init_client=Partial(init_client, sigma),
        init_server=Partial(init_server, sigma),
        broadcast=Partial(broadcast),
        begin=Partial(begin),
        asks=Partial(asks),
        local_step=Partial(local_step, sigma),
        upload=Partial(upload),
        compressor=made,
        server_steps=Partial(server_steps, sigma),
        combine=Partial(combine, rho, eta),
        commit=Partial(commit, made, rho, eta),
        local_steps=Partial(geometric, p),
        controls=Partial(controls, sigma),
        restarts=False,  # u_i and v begin at one x: else mean_i u_i + v is not 0
    )
