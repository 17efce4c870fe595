"""The method on both sides: the server's for all clients, a client's for itself alone."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from scafflix import theory
from scafflix.config import Auto
from scafflix.deploy.messages import Introduction
from scafflix.errors import ScafflixError
from scafflix.gradients import Exact, Gradient
from scafflix.methods import METHODS, PACED, Method
from scafflix.problem import Constants
from scafflix.theory import Plan, without_theory


def advice(
    introductions: Sequence[Introduction],
    gradient: Gradient,
    stepsize: Auto = "auto",
    p: Auto = "auto",
) -> Plan:
    """What theory advises for the clients that introduced themselves, all with alpha_i > 0.

    Where some client knows no constants (a network), `stepsize` and `p` are needed instead.
    """
    alpha = np.array([one.alpha for one in introductions])
    gamma = np.array([one.gamma for one in introductions])
    if not (gamma > 0).all():
        unknown = introductions[int(np.argmin(gamma))].client
        if isinstance(stepsize, str) or isinstance(p, str):
            raise ScafflixError(
                f"Client {unknown} knows no stepsize; give the numbers stepsize and p."
            )
        return without_theory(alpha, np.full(len(alpha), float(stepsize)), float(p), gradient)
    mu = np.array([one.gamma_mu for one in introductions]) / gamma
    L = np.array([one.gamma_L for one in introductions]) / gamma
    A = L if isinstance(gradient, Exact) else 1 / gamma
    noise = np.zeros(len(alpha)) if isinstance(gradient, Exact) else np.full(len(alpha), np.nan)
    constants = Constants(L, mu, np.full(len(alpha), np.nan))
    return theory.advise(alpha, constants, gradient, A, noise)


@lru_cache(maxsize=64)
def own_method(name: str, alpha: float, gamma: float, p: float, pace: str) -> Method:
    """A client's side of a method: `init_client`, `local_step`, `upload`, `commit`.

    They depend on the others only through gamma_i and p, which the server sends; so the method is
    planned for a federation of this client alone, for which theory would advise that gamma_i.
    """
    if name not in METHODS:
        raise ScafflixError(f"method is {name!r}; it must be one of {', '.join(METHODS)}.")
    if not (alpha > 0 and gamma > 0):
        raise ScafflixError(f"alpha is {alpha:g} and gamma is {gamma:g}; both must be above 0.")
    curvature = np.array([1 / gamma])
    plan = Plan(
        alpha=np.array([alpha]),
        constants=Constants(curvature, curvature, curvature),
        gradient=Exact(),
        A=curvature,
        C=np.zeros(1),
        gamma=np.array([gamma]),
        p=p,
        epsilon=None,
    )
    return METHODS[name](plan, p=p, **({"pace": pace} if name in PACED and pace else {}))
