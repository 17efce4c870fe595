"""The method on both sides: the server plans it for all clients, a client for itself."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache

import numpy as np

from scafflix import theory
from scafflix.core.errors import ScafflixError, reason_of
from scafflix.federate.messages import Introduction
from scafflix.gradients import Exact, Gradient, Minibatch, Reduced
from scafflix.methods import METHODS, Method
from scafflix.problems.constants import Constants
from scafflix.runs.values import Auto
from scafflix.theory import Plan, without_theory


def advice(
    introductions: Sequence[Introduction],
    gradient: Gradient,
    stepsize: Auto = "auto",
    p: Auto = "auto",
) -> Plan:
    """What theory advises for these clients, all with alpha_i > 0.

    If a client has no constants (a network), `stepsize` and `p` are needed instead.
    """
    alpha = np.array([one.alpha for one in introductions])
    gamma = np.array([one.gamma for one in introductions])
    if not (gamma > 0).all():
        unknown = introductions[int(np.argmin(gamma))].client
        if isinstance(stepsize, str) or isinstance(p, str):
            raise ScafflixError(f"Client {unknown} has no stepsize; set stepsize and p to numbers.")
        return without_theory(alpha, np.full(len(alpha), float(stepsize)), float(p), gradient)
    mu = np.array([one.gamma_mu for one in introductions]) / gamma
    L = np.array([one.gamma_L for one in introductions]) / gamma
    A = L if isinstance(gradient, Exact) else 1 / gamma
    noise = np.full(len(alpha), np.nan if isinstance(gradient, Minibatch) else 0.0)
    L_example = np.full(len(alpha), np.nan)
    if isinstance(gradient, Reduced):  # A_i = L_i + 6 L_i'/B
        L_example = gradient.size / 6 * (A - L)
        gradient = replace(gradient, counts=np.array([one.examples for one in introductions]))
    return theory.advise(alpha, Constants(L, mu, L_example), gradient, A, noise)


UsersMethod = Callable[..., Method]


@lru_cache(maxsize=64)
def own_method(
    name: str, settings: str, alpha: float, gamma: float, users: UsersMethod | None = None
) -> Method:
    """A client's side of a method.

    It depends on other clients only through gamma_i and the settings, which the server sends. So
    the method is planned for a federation of this client alone, for which theory would advise this
    gamma_i. A server only names a method; it never sends code.
    """
    make = METHODS.get(name, users)
    if make is None:
        raise ScafflixError(
            f"method is {name!r}; it must be one of {', '.join(METHODS)}, or your own method, "
            "given to this node with --method."
        )
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
        p=1.0,
        epsilon=None,
    )
    try:
        made = make(plan, **json.loads(settings))
    except (TypeError, ValueError) as error:
        raise ScafflixError(
            f"{name} does not accept the server's settings: {reason_of(error)}"
        ) from None
    if made.name != name:
        raise ScafflixError(
            f"The server asks for the method {name!r}, but --method makes {made.name!r}."
        )
    return made


def settings_text(method: Method) -> str:
    """A method's hyperparameters as JSON, to send to clients."""
    plain = {
        name: value if isinstance(value, str | int) or value is None else float(value)
        for name, value in method.settings.items()
    }
    return json.dumps(plain, sort_keys=True)
