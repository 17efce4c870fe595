"""The one contract: a method is a handful of pure functions over points and states.

Points support only `+`, `-` and multiplication by a number, so that a method runs on JAX trees
in the simulator and on NumPy or PyTorch arrays in a federation. The engine evaluates gradients,
draws random numbers and forms weighted means; a method does none of these.

Every method works on the FLIX objective: g estimates grad f_i(x~_i) at the client's mixture
x~_i, so that alpha_i g estimates the gradient of f~_i(x) = f_i(alpha_i x + (1 - alpha_i) x_i*).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.tree_util import Partial

from scafflix.errors import ScafflixError
from scafflix.gradients import Gradient
from scafflix.theory import Rate

Point = Any  # a Vector or an array
State = Any  # a named tuple of points
Number = Any
Factor = Callable[[Number], Number]  # of the number of local steps


class Client(NamedTuple):
    """What a method knows of one client."""

    alpha: Number
    gamma: Number  # the stepsize on f_i, as Scafflix counts it

    @property
    def step(self) -> Number:
        """The stepsize on f~_i, as i-Scaffnew and GD count it: gamma_i / alpha_i^2."""
        return self.gamma / self.alpha**2


class Nothing(NamedTuple):
    """The state of a client that remembers nothing."""


class Server(NamedTuple):
    """The state of a server that keeps only the model."""

    x: Point


def _remember_nothing(client: Client, x0: Point, h0: Point) -> State:
    return Nothing()


def _send_point(client: Client, state: State, x_hat: Point) -> tuple[Point, Number]:
    return x_hat, 1.0


def _keep_mean(server: State, mean: Point) -> State:
    return Server(mean)


def _send_model(server: State) -> Point:
    return server.x


def _change_nothing(
    client: Client, state: State, x_hat: Point, x_bar: Point, steps: Number
) -> State:
    return state


def _no_controls(client: Client, state: State) -> Point | None:
    return None


def geometric(p: Number, uniform: Number) -> Number:
    """K with P(K = k) = p (1 - p)^(k-1): the coin of line 5, flipped until it shows 1.

    >>> [int(geometric(0.5, u)) for u in (0.9, 0.3, 0.1)]
    [1, 2, 4]
    """
    tosses = np.ceil(np.log(uniform) / np.log1p(-min(p, 1 - 1e-15)))
    return np.maximum(1, tosses).astype(int)


def once(uniform: Number) -> Number:
    """One step a round."""
    return np.ones_like(uniform, int)


def expected(p: Number, steps: Number) -> Number:
    """p, one over the expected number of local steps."""
    return p


def actual(steps: Number) -> Number:
    """1/K, one over the number of local steps that the round made."""
    return 1 / steps


def cautious(p: Number, steps: Number) -> Number:
    """The smaller of p and 1/K."""
    other = 1 / steps
    return other + (p - other) * (p < other)


PACES = ("expected", "actual", "cautious")


def paced(p: Number, pace: str) -> Factor:
    """The factor by which control variates advance after K local steps.

    `expected` is the paper's line 13, proven for convex problems in which all clients take part.
    With stochastic gradients and sampled clients it overshoots after a round that happens to be
    long; `actual` does so after a short one, whose noise it takes at full weight; `cautious` after
    neither. All have the same fixed point and keep the same sum_i alpha_i h_i, since the factor is
    common to the clients of a round.
    """
    if pace not in PACES:
        raise ScafflixError(f"pace is {pace!r}; it must be one of {', '.join(PACES)}.")
    if pace == "actual":
        return Partial(actual)
    return Partial(expected if pace == "expected" else cautious, p)


@jax.tree_util.register_dataclass
@dataclass(frozen=True, kw_only=True)
class Method:
    """A method with its stepsizes; what a method leaves out is averaging without memory.

    Hyperparameters are leaves of this tree, so that methods that differ only in them share one
    compiled program, or run side by side in it.
    """

    name: str = field(metadata={"static": True})
    gamma: Any  # [clients], Client.gamma of each
    limit: Any  # [clients], the largest gamma for which theory speaks
    p: Any  # communications per iteration
    rate: Rate
    gradient: Gradient  # what the stepsizes were made for
    # (client, x0, h0) -> state, with h0 an estimate of grad f_i(x~_i*)
    init_client: Callable[[Client, Point, Point], State] = Partial(_remember_nothing)
    # x0 -> server
    init_server: Callable[[Point], State] = Partial(Server)
    # (client, state, x, g) -> x_hat
    local_step: Callable[[Client, State, Point, Point], Point]
    # (client, state, x_hat) -> message, weight
    upload: Callable[[Client, State, Point], tuple[Point, Number]] = Partial(_send_point)
    # (server, weighted mean of the messages) -> server, whose field x is the model
    combine: Callable[[State, Point], State] = Partial(_keep_mean)
    # server -> the point from which every client goes on
    broadcast: Callable[[State], Point] = Partial(_send_model)
    # (client, state, x_hat, broadcast, K) -> state
    commit: Callable[[Client, State, Point, Point, Number], State] = Partial(_change_nothing)
    # uniform numbers in (0, 1] -> K, the local steps of as many rounds
    local_steps: Callable[[Number], Number] = Partial(once)
    # (client, state) -> h_i, which tends to grad f_i(x~_i*); None for a method without
    controls: Callable[[Client, State], Point | None] = Partial(_no_controls)
