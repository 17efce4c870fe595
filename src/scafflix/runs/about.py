"""What there is to know of a method before it runs: by its file, and by its own functions."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import NamedTuple

import jax
import numpy as np

from scafflix import theory
from scafflix.core.errors import ScafflixError
from scafflix.core.precision import in_float64
from scafflix.core.vector import Vector, names_of
from scafflix.gradients import Exact
from scafflix.methods import find, parameters
from scafflix.methods.method import Client, Method, fitted
from scafflix.problems.constants import Constants
from scafflix.simulate.bits import message_bits

CLIENTS = 10  # of the round whose messages are counted
# and the numbers of the model's arrays; some of them a method may keep at home
ARRAYS = {"layer0": 890, "layer0/norm": 10, "layer1/weight": 100}
NUMBERS = sum(ARRAYS.values())


class About(NamedTuple):
    """A method in facts; what travels and what is stored are counted in models."""

    name: str
    title: str  # the method and its paper
    text: str  # the rest of what its file says, and what its function says of the parameters
    guarantee: str
    up: float
    down: float
    stored: float
    parameters: dict[str, str]  # with their defaults


@in_float64
def about(name: str) -> About:
    """A method by its name, or one of your own by FILE.py:FUNCTION."""
    make = find(name)
    title, _, text = (_doc_of_file(make) or "").partition("\n\n")
    own = inspect.getdoc(make) or ""
    if own != _doc_of_file(make):
        text = "\n\n".join(filter(None, (text, own)))
    template = {one: jax.ShapeDtypeStruct((size,), np.float64) for one, size in ARRAYS.items()}
    method = fitted(_example(name), names_of(template))
    up, down = (bits / (64 * NUMBERS) for bits in message_bits(method, template, CLIENTS))
    point = Vector(template)

    def first(x: Vector) -> object:
        return method.init_client(Client(1.0, 1.0, x), x, x)

    kept = sum(leaf.size for leaf in jax.tree.leaves(jax.eval_shape(first, point)))
    signature = inspect.signature(make).parameters
    names = [one for one in signature if one == "stepsize" or one in parameters(make)]
    defaults = {one: signature[one].default for one in names}
    return About(
        name=name,
        title=" ".join(title.split()),
        text=text,
        guarantee="linear" if np.isfinite(method.rate.zeta) else "none",
        up=up,
        down=down,
        stored=kept / NUMBERS,
        parameters={one: _default(value) for one, value in defaults.items()},
    )


def _doc_of_file(make: Callable[..., Method]) -> str | None:
    doc = getattr(make, "__globals__", {}).get("__doc__") or inspect.getdoc(make)
    return doc and inspect.cleandoc(doc)


def _default(value: object) -> str:
    if value is inspect.Parameter.empty:
        return "to be given"
    return "auto" if value is None else str(value)


def _example(name: str) -> Method:
    """The method for the clients of some problem."""
    ones = np.ones(CLIENTS)
    constants = Constants(ones, ones / 10, ones)
    try:
        return find(name)(theory.advise(ones, constants, Exact(), ones, 0 * ones))
    except TypeError as error:
        raise ScafflixError(f"{name} cannot be called with a plan alone: {error}.") from None
