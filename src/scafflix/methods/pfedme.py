"""pFedMe: Dinh, Tran and Nguyen, "Personalized Federated Learning with Moreau Envelopes" (2020),
Algorithm 1, on the functions f~_i.

The model of all minimizes (1/n) sum_i F_i(w), F_i(w) = min_theta f~_i(theta) + (lambda/2)
||theta - w||^2; the theta_i at which the minimum is, is what client i takes home.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from jax.tree_util import Partial

from scafflix.core.arguments import real_number, whole_number
from scafflix.methods.ditto import pulled
from scafflix.methods.fedavg import fedavg
from scafflix.methods.method import Client, Method, Number, Point, Sent, Server, geometric
from scafflix.personalization.mixing import mix
from scafflix.theory import Plan


class State(NamedTuple):
    """The client's own model."""

    theta: Point


class Local(NamedTuple):
    """The client's copy of the model of all, and its own."""

    w: Point
    theta: Point
    made: Number  # steps towards the next theta_i


def init_client(client: Client, x0: Point, h0: Point) -> State:
    return State(x0)


def begin(client: Client, state: State, sent: Sent) -> Local:
    """w_i = w; theta_i begins there too."""
    return Local(sent.x, sent.x, 0 * client.gamma)


def asks(client: Client, state: State, sent: Sent, local: Local) -> Point:
    return mix(client.alpha, local.theta, client.x_star)


def local_step(
    pull: Number, inner: Number, client: Client, state: State, sent: Sent, local: Local, g: Point
) -> Local:
    """A gradient step of theta_i towards the minimum of f~_i(theta) + (lambda/2) ||theta - w_i||^2;
    after every `inner` of them, w_i = w_i - eta lambda (w_i - theta_i)."""
    theta = pulled(pull, client, local.theta, g, local.w)
    made = (local.made + 1) % inner
    eta = client.step / (1 + client.step * pull)
    return Local(local.w - ((made == 0) * eta * pull) * (local.w - theta), theta, made)


def upload(client: Client, state: State, sent: Sent, local: Local) -> tuple[Point, Number]:
    return local.w, 1.0


def combine(beta: Number, server: Server, mean: Point, share: Number) -> Server:
    """w = (1 - beta) w + beta (1/|S|) sum_i w_i."""
    return Server(server.x + beta * (mean - server.x))


def commit(
    client: Client, state: State, sent: Sent, local: Local, after: Sent, steps: Number
) -> State:
    return State(local.theta)


def personal(client: Client, state: State, x: Point) -> Point:
    return mix(client.alpha, state.theta, client.x_star)


def whole_updates(p: Number, inner: Number, rounds: Number, uniform: Number) -> Number:
    """As many gradient steps as a geometric number of updates of w_i takes."""
    return inner * geometric(p, rounds, uniform)


def pfedme(
    plan: Plan,
    stepsize: float | None = None,
    p: float | None = None,
    pull: float = 15.0,
    inner: int = 5,
    beta: float = 1.0,
) -> Method:
    """pFedMe with lambda = `pull`, `inner` gradient steps for a theta_i, and the server's beta.

    Of a round, 1/p is the expected number of updates of w_i. Every gradient is on a sample of its
    own; the paper has one sample for all those of a theta_i. theta_i and w_i have one stepsize,
    eta = gamma / (1 + gamma lambda), below 1/lambda, what the smoothness of F_i allows. Defaults
    of lambda and `inner` are those of the paper's experiments.
    """
    base = fedavg(plan, stepsize, p)
    pull = real_number("pull", pull, above=True)
    inner = whole_number("inner", inner, least=1)
    beta = real_number("beta", beta, above=True)
    return replace(
        base,
        name="pfedme",
        settings={**base.settings, "pull": pull, "inner": inner, "beta": beta},
        p=base.p / inner,
        init_client=Partial(init_client),
        begin=Partial(begin),
        asks=Partial(asks),
        local_step=Partial(local_step, pull, inner),
        upload=Partial(upload),
        combine=Partial(combine, beta),
        commit=Partial(commit),
        personal=Partial(personal),
        local_steps=Partial(whole_updates, base.p, inner),
    )
