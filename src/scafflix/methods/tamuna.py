"""TAMUNA: Condat, Agarsky, Malinovsky and Richtarik, "TAMUNA: Doubly Accelerated Distributed
Optimization with Local Training, Compression, and Partial Participation" (2023), on the f~_i.

Scaffnew over a cohort of c clients, in which each number of the model is sent by s of them: all
draw the same mask, and each sends its own part, about s d/c numbers. Idle clients keep h_i.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import jax
from jax.tree_util import Partial

from scafflix.core.arguments import real_number, whole_number
from scafflix.core.durable import Arrays
from scafflix.core.errors import ScafflixError
from scafflix.methods.flat import in_numpy, numbers_of, widest
from scafflix.methods.i_scaffnew import State, controls, init_client, local_step
from scafflix.methods.method import (
    Client,
    Factor,
    Message,
    Method,
    Number,
    Point,
    Sent,
    Server,
    Turn,
    geometric,
    paced,
)
from scafflix.methods.sieve import Sieve
from scafflix.theory import (
    NO_RATE,
    Plan,
    check_plan,
    chosen_probability,
    chosen_stepsize,
    theorem,
)


@jax.tree_util.register_static
@dataclass(frozen=True)
class Mask:
    """Each number from s of the c clients of a round, evenly, and who sends which by chance."""

    s: int

    def owned(self, turn: Turn) -> Sieve:
        """q_i: the client in column k sends number j where (k - s j) mod c < s; columns are
        permuted by the key of the round."""
        self.check(turn.cohort)
        column = jax.random.permutation(turn.key, turn.cohort)[turn.place]
        return Sieve(-self.s % turn.cohort, column, turn.cohort, self.s)

    def apply(self, turn: Turn, message: Message) -> Message:
        """(c/s) q_i . x, whose mean over the cohort is (1/s) sum_i q_i . x_i."""
        return self.owned(turn).through(message, turn.cohort / self.s)

    def bits(self, message: Message, cohort: int) -> int:
        """ceil(s d/c) numbers, the most that one client sends; the mask is known to all."""
        return 8 * self.most(message, cohort) * widest(message).itemsize

    def encode(self, turn: Turn, message: Message) -> Arrays:
        """Its numbers, and a zero if others have one more."""
        message = in_numpy(message)
        return (self.owned(turn).picked(message, self.most(message, turn.cohort)),)

    def decode(self, turn: Turn, arrays: Arrays, template: Message) -> Message:
        return self.owned(turn).placed(arrays[0], template, turn.cohort / self.s)

    def most(self, message: Message, cohort: int) -> int:
        """The most numbers that one client sends."""
        self.check(cohort)
        return -(-self.s * numbers_of(message) // cohort)

    def check(self, cohort: int) -> None:
        """No more can send a number than there are."""
        if self.s > cohort:
            raise ScafflixError(f"s is {self.s}; it must be at most {cohort}, the clients a round.")


def upload(client: Client, state: State, sent: Sent, x_hat: Point) -> tuple[Point, Number]:
    """x_hat_i - x, of which the mask leaves a part."""
    return x_hat - sent.x, 1.0


def combine(server: Server, mean: Point, share: Number) -> Server:
    """x+ = (1/s) sum_i q_i . x_hat_i = x + (1/s) sum_i q_i . (x_hat_i - x)."""
    return Server(server.x + mean)


def commit(
    mask: Mask,
    factor: Factor,
    chi: Number,
    client: Client,
    state: State,
    sent: Sent,
    x_hat: Point,
    after: Sent,
    steps: Number,
) -> State:
    """h_i = h_i + (p chi / gamma) q_i . (x+ - x_hat_i), or with 1/K for p."""
    assert client.turn is not None
    mine = mask.owned(client.turn).through(after.x - x_hat)
    return State(state.h + (factor(steps) * chi / client.step) * mine)


def tamuna(
    plan: Plan,
    stepsize: float | None = None,
    p: float | None = None,
    pace: str | None = None,
    s: int | None = None,
    chi: float | None = None,
) -> Method:
    """TAMUNA with one stepsize: the largest that suits every client, or a given one.

    s defaults to 2, with which clients send least; with s = n it is Scaffnew.
    chi defaults to n(s - 1) / (s(n - 1)), the largest of the theorem, and p to sqrt(n / (s kappa)).
    With a = (s - 1)/(n - 1), Psi whose second term is divided by chi a contracts by
    1 - min(gamma mu, p^2 chi a); so Psi itself stays under that times 1/(chi a).
    """
    check_plan(plan)
    step, n = chosen_stepsize(stepsize, (plan.gamma / plan.alpha**2).min()), plan.n
    gamma = step * plan.alpha**2
    if isinstance(s, float) and float(s).is_integer():  # as it comes out of a message
        s = int(s)
    least = min(2, n)
    s = least if s is None else whole_number("s", s, least=least)
    if chi is None and 1 < n < s:
        raise ScafflixError(f"s is {s}; it must be at most {n}, the clients that take part.")
    largest = n * (s - 1) / (s * (n - 1)) if n > 1 else 1.0
    chi = real_number("chi", largest if chi is None else chi, above=True)
    p = chosen_probability(p, min(1.0, plan.p_for(gamma) * math.sqrt(max(1.0, n / s))))
    pace = plan.pace if pace is None else pace
    rate = NO_RATE
    if plan.exact and pace == "expected" and chi <= (1 + 1e-12) * largest:
        part = chi * (s - 1) / (n - 1) if n > 1 else 1.0
        made = theorem(gamma, p * math.sqrt(part), plan.constants.mu, plan.A, plan.C)
        rate = made._replace(factor=made.factor / part, least=s)
    mask = Mask(s)
    return Method(
        name="tamuna",
        settings={"p": p, "pace": pace, "s": s, "chi": chi},
        gamma=gamma,
        limit=1 / plan.A,
        p=p,
        rate=rate,
        gradient=plan.gradient,
        made_for=plan.made_for,
        init_client=Partial(init_client),
        local_step=Partial(local_step),
        upload=Partial(upload),
        compressor=mask,
        combine=Partial(combine),
        commit=Partial(commit, mask, paced(p, pace), chi),
        local_steps=Partial(geometric, p),
        controls=Partial(controls),
    )
