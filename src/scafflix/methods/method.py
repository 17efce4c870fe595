"""The one contract: a method is a handful of pure functions over points and states.

Points support only `+`, `-` and multiplication by a number, so that a method runs on JAX trees
in the simulator and on NumPy or PyTorch arrays in a federation. Whoever runs a method evaluates
gradients, draws random numbers and forms weighted means; a method does none of these.
`algorithm.py` shows in which order its functions are called.

Every method works on the FLIX objective: by default g estimates grad f_i(x~_i) at the client's
mixture x~_i, so that alpha_i g estimates the gradient of
f~_i(x) = f_i(alpha_i x + (1 - alpha_i) x_i*).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, NamedTuple, Protocol

import jax
import numpy as np
from jax.tree_util import Partial

from scafflix.core.arguments import choice
from scafflix.core.durable import Arrays
from scafflix.core.vector import inner
from scafflix.gradients import Gradient
from scafflix.personalization.mixing import mix
from scafflix.privacy.terms import Release
from scafflix.theory import Rate

Point = Any  # a Vector or an array
Points = Any  # a point, or a tuple of points
Local = Any  # what a client iterates on: a point, or a tree of points
State = Any  # a named tuple of points
Message = Any  # a point, or a tree of points
Number = Any
Factor = Callable[[Number], Number]  # of the number of local steps


class Turn(NamedTuple):
    """A client's part in one round, from which it draws, alone or together with the others."""

    key: Any  # random, by the seed and the round: the same for all clients of the round
    place: Number  # 0, 1, ...: the client's, in the order of all clients
    cohort: int  # how many are asked in the round

    @property
    def own_key(self) -> Any:
        """What this client alone draws from."""
        return jax.random.fold_in(self.key, self.place)


class Client(NamedTuple):
    """What a method knows of one client."""

    alpha: Number
    gamma: Number  # the stepsize on f_i, as Scafflix counts it
    x_star: Point | None = None  # the local optimum; None where nobody needs it: alpha_i = 1
    examples: Number = 1  # that it trains on
    clients: Number = 1  # how many take part, n
    turn: Turn | None = None  # its part in the round; known in `upload` and `commit`

    @property
    def step(self) -> Number:
        """The stepsize on f~_i, as i-Scaffnew and GD count it: gamma_i / alpha_i^2."""
        return self.gamma / self.alpha**2


class Nothing(NamedTuple):
    """The state of a client that remembers nothing."""


class Server(NamedTuple):
    """The state of a server that keeps only the model."""

    x: Point


class Sent(NamedTuple):
    """What goes down to the clients: the point from which they go on."""

    x: Point


class Compressor(Protocol):
    """What happens to a message on its way up, and how many bits it then takes.

    Registered with JAX as a tree, maybe one without leaves: then another number in it is another
    program, as suits what decides how long messages are.
    """

    def apply(self, turn: Turn, message: Message) -> Message:
        """What arrives."""

    def bits(self, message: Message, cohort: int) -> int:
        """Of a message of these shapes and types, in a round of as many clients."""

    def encode(self, turn: Turn, message: Message) -> Arrays:
        """What travels between machines: arrays of as many bits in all. Their types and shapes
        follow from those of the message and the size of the cohort."""

    def decode(self, turn: Turn, arrays: Arrays, template: Message) -> Message:
        """What `apply` gives of the message, bit for bit, in NumPy arrays of the template's shapes.

        The arrays may be those of somebody who cheats, with the right types and shapes: what no
        message is encoded as is a ScafflixError.
        """


def remember_nothing(client: Client, x0: Point, h0: Point) -> State:
    return Nothing()


def send_model(server: State) -> Sent:
    return Sent(server.x)


def begin_from_model(client: Client, state: State, sent: Any) -> Local:
    return sent.x


def ask_at_mixture(client: Client, state: State, sent: Any, local: Local) -> Points:
    """Line 7: x~_i = alpha_i x_i + (1 - alpha_i) x_i*."""
    return mix(client.alpha, local, client.x_star)


def send_point(client: Client, state: State, sent: Any, local: Local) -> tuple[Message, Number]:
    return local, 1.0


def keep_mean(server: State, mean: Message, share: Number) -> State:
    return Server(mean)


def wait(server: State, steps: Number) -> State:
    return server


def change_nothing(
    client: Client, state: State, sent: Any, local: Local, after: Any, steps: Number
) -> State:
    return state


def take_mixture(client: Client, state: State, x: Point) -> Point:
    return mix(client.alpha, x, client.x_star)


def no_controls(client: Client, state: State) -> Point | None:
    return None


def geometric(p: Number, rounds: Number, uniform: Number) -> Number:
    """K with P(K = k) = p (1 - p)^(k-1): the coin of line 5, flipped until it shows 1.

    >>> [int(geometric(0.5, 0, u)) for u in (0.9, 0.3, 0.1)]
    [1, 2, 4]
    """
    tosses = np.ceil(np.log(uniform) / np.log1p(-min(p, 1 - 1e-15)))
    return np.maximum(1, tosses).astype(int)


def once(rounds: Number, uniform: Number) -> Number:
    """One step a round."""
    return np.ones_like(uniform, int)


def every_time(p: Number, rounds: Number, uniform: Number) -> Number:
    """K = 1/p steps in every round.

    >>> int(every_time(0.25, 0, 0.9))
    4
    """
    return np.full_like(uniform, round(1 / float(p)), int)


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


def steady(p: Number, steps: Number) -> Number:
    """A fifth of it: a control variate is then a mean over several of a client's rounds."""
    return STEADY * cautious(p, steps)


STEADY = 0.2
PACES: dict[str, Callable[..., Number]] = {
    "expected": expected,
    "actual": actual,
    "cautious": cautious,
    "steady": steady,
}


def paced(p: Number, pace: str) -> Factor:
    """The factor by which control variates advance after K local steps.

    `expected` is the paper's line 13, proven for convex problems in which all clients take part.
    With stochastic gradients and sampled clients it overshoots after a round that happens to be
    long; `actual` does so after a short one, whose noise it takes at full weight; `cautious` after
    neither. `steady` averages that noise, which a client that is seldom there would otherwise
    carry with it for long. All have the same fixed point and keep the same sum_i alpha_i h_i, since
    the factor is common to the clients of a round.
    """
    choice("pace", pace, tuple(PACES))
    return Partial(PACES[pace], *(() if pace == "actual" else (p,)))


def corrected(cap: Number, g: Point, h: Point) -> Point:
    """g - h, at most `cap` times as long as g.

    The h_i of a client that seldom takes part may be far longer than its gradients of today. Its
    steps would then follow h_i alone, and lead far off course in a long round. Near the optimum h_i
    is nearly g_i, and nothing is shortened.

    >>> g, h = np.array([0.0, 1.0]), np.array([3.0, 5.0])
    >>> corrected(1, g, h).round(3).tolist(), corrected(9, g, h).tolist()
    ([-0.6, -0.8], [-3.0, -4.0])
    """
    difference = g - h
    room, length = cap**2 * inner(g, g), inner(difference, difference)
    larger = length + (room - length) * (room > length)
    return (room / (larger + (larger == 0))) ** 0.5 * difference


@dataclass(frozen=True, kw_only=True)
class Method:
    """A method with its stepsizes; what a method leaves out is averaging without memory.

    Hyperparameters are leaves of this tree, so that methods that differ only in them share one
    compiled program, or run side by side in it.
    """

    name: str
    # the hyperparameters besides the stepsizes: with these as arguments its constructor makes
    # the method again, in another process or on another machine
    settings: Mapping[str, Any] = field(default_factory=dict)
    gamma: Any  # [clients], Client.gamma of each
    limit: Any  # [clients], the largest gamma for which theory speaks
    p: Any  # communications per iteration
    rate: Rate
    gradient: Gradient  # what the stepsizes were made for
    # (client, x0, h0) -> state, with h0 an estimate of grad f_i(x~_i*)
    init_client: Callable[[Client, Point, Point], State] = Partial(remember_nothing)
    # x0 -> server, whose field x is the model
    init_server: Callable[[Point], State] = Partial(Server)
    # server -> what goes down: a tuple of points, one of them x
    broadcast: Callable[[State], Any] = Partial(send_model)
    # (client, state, sent) -> what the client iterates on
    begin: Callable[[Client, State, Any], Local] = Partial(begin_from_model)
    # (client, state, sent, local) -> where it wants gradients on one sample: a point or a tuple
    asks: Callable[[Client, State, Any, Local], Points] = Partial(ask_at_mixture)
    # (client, state, sent, local, g) -> the next local; g has the form of what was asked
    local_step: Callable[[Client, State, Any, Local, Points], Local]
    # (client, state, sent, local) -> message, weight
    upload: Callable[[Client, State, Any, Local], tuple[Message, Number]] = Partial(send_point)
    # (server, K) -> server: what it does by itself while clients make their K steps
    server_steps: Callable[[State, Number], State] = Partial(wait)
    # (server, weighted mean of the messages, |cohort| / n) -> server
    combine: Callable[[State, Message, Number], State] = Partial(keep_mean)
    # (key, weighted mean, its unit of noise) -> the mean with the noise that the server adds to it
    # before it combines; None: it adds none
    blur: Callable[[Any, Message, Number], Message] | None = None
    # (client, state, sent, local, what goes down next, K) -> state
    commit: Callable[[Client, State, Any, Local, Any, Number], State] = Partial(change_nothing)
    # (client, state, x) -> the model that the client takes home
    personal: Callable[[Client, State, Point], Point] = Partial(take_mixture)
    # (client, state, x, g) -> x: a step that a client makes by itself from the final x before it
    # takes it home, with g at what it would take home now; None: it makes none
    tune: Callable[[Client, State, Point, Point], Point] | None = None
    tuning_steps: Any = 0  # how many of these
    # (numbers of rounds from 0, as many uniform numbers in (0, 1]) -> K, their local steps
    local_steps: Callable[[Number, Number], Number] = Partial(once)
    # (all clients, K, a uniform number of each) -> K_i: where each stops by itself, and with more
    # than K it does not; None: all go on to K
    own_steps: Callable[[Client, Number, Number], Number] | None = None
    # (client, state, sent, local, g) -> local: the last step of a client that stops by itself;
    # None: a local_step like the others
    stop: Callable[[Client, State, Any, Local, Points], Local] | None = None
    compressor: Compressor | None = None
    # (this method, names of the model's arrays) -> the method for such a model, or refuse it;
    # None: it suits every model as it is
    fit: Callable[[Method, Sequence[str]], Method] | None = None
    # (client, state) -> h_i, which tends to grad f_i(x~_i*); None for a method without
    controls: Callable[[Client, State], Point | None] = Partial(no_controls)
    # whether clients may begin anew, from where they began, while the server goes on from its x
    restarts: bool = True
    # what clients let out of a round, with privacy for each; None: all that they reached.
    # `methods/private.py` sees to it before anybody runs the method
    release: Release | None = None
    # whether clients draw random numbers in `upload` and `commit`, as a compressor does
    draws: bool = False
    # what the plan was made for; None for a method made by hand, which only its shapes tell apart
    made_for: Mapping[str, Any] | None = None

    @property
    def mixes(self) -> bool:
        """Whether clients take home the mixture, whatever they remember."""
        mixture = isinstance(self.personal, Partial) and self.personal.func is take_mixture
        return mixture and self.tune is None


# settings are there as leaves already, in the functions; and a plan for other data or another
# alpha is no other program
DROPPED, WORDS = ("settings", "made_for", "release"), ("name", "restarts", "draws")
jax.tree_util.register_dataclass(
    Method,
    data_fields=[one.name for one in fields(Method) if one.name not in (*WORDS, *DROPPED)],
    meta_fields=WORDS,
    drop_fields=DROPPED,
)


def fitted(method: Method, names: Sequence[str]) -> Method:
    """The method for a model whose arrays have these names, in the order of its leaves."""
    return method if method.fit is None else replace(method.fit(method, names), fit=None)
