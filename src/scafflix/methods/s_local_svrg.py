"""S-Local-SVRG: Gorbunov, Hanzely and Richtarik, "Local SGD: Unified Theory and New Efficient
Methods" (2021), on the functions f~_i.

Local steps are corrected by the gradients at a reference y that all clients share:

    x_i = x_i - s (grad f~_i(x_i) - grad f~_i(y) + grad f~(y))

and y becomes the model only now and then. Clients then send their gradients there, in an exchange
of its own, which counts as a round here as in FedLin, the method that renews y before all others.
The paper takes a minibatch at x_i and at y; here any estimate can stand for grad f~_i, and with
reduced variance, as there, minibatches lead to the optimum.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from jax.tree_util import Partial

from scafflix.core.arguments import real_number
from scafflix.core.errors import ScafflixError
from scafflix.core.types import Floats
from scafflix.methods.fedlin import fedlin
from scafflix.methods.method import Method, Number, geometric
from scafflix.theory import Plan, check_plan, chosen_probability


def by_coins(p: Number, q: Number, rounds: Number, uniform: Number) -> Number:
    """K: 1, an exchange of gradients, in round 0 and with probability q in rounds 2, 4, ...;
    else as many steps as flips of a coin of probability p, at least 2.

    >>> by_coins(0.25, 0.5, np.arange(5), np.array([0.3, 0.3, 0.3, 0.3, 0.9])).tolist()
    [1, 5, 2, 5, 1]
    """
    even, uniform = np.asarray(rounds) % 2 == 0, np.asarray(uniform)
    renews = even & ((uniform > 1 - q) | (np.asarray(rounds) == 0))
    # below 1 - q an even round's number is uniform there
    left = np.where(even & ~renews, uniform / max(1 - q, 1e-15), uniform)
    return np.where(renews, 1, np.maximum(2, geometric(p, rounds, left)))


def s_local_svrg(
    plan: Plan,
    stepsize: float | Floats | None = None,
    p: float | None = None,
    q: float | None = None,
) -> Method:
    """S-Local-SVRG with 1/p local steps a round on average, and y renewed before every second
    round with probability q.

    With q = 1 it is FedLin with as many steps. The default is q = 1/4: of 1, 1/2, 1/4, 1/10 and
    1/20 it took the fewest rounds, or nearly, in our trials. The stepsizes are FedLin's, 1/(K L~_i)
    with K = 1/p. The paper has a linear rate, no better than GD's in the number of rounds, whose
    constants are not worked out here; nothing is claimed.
    """
    check_plan(plan)
    q = 0.25 if q is None else real_number("q", q, above=True)
    if q > 1:
        raise ScafflixError(f"q is {q:g}; it must be above 0 and at most 1.")
    if p is not None and p == 1:
        raise ScafflixError("p is 1, with which s_local_svrg makes no local steps; give p below 1.")
    p = chosen_probability(p, min(0.5, plan.p))
    made = fedlin(plan, stepsize, p)
    mean = q / 2 + (1 - q / 2) * (1 / p + p)  # steps of a round
    return replace(
        made,
        name="s_local_svrg",
        settings={"p": p, "q": q},
        p=1 / mean,
        local_steps=Partial(by_coins, p, q),
    )
