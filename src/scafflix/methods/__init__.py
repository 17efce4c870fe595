"""The methods, each in a file of its own; a new one is a file and a line here."""

from collections.abc import Callable
from inspect import signature

from scafflix.core import specs
from scafflix.core.arguments import instance, shown
from scafflix.core.errors import ScafflixError
from scafflix.core.plugins import find_function
from scafflix.methods.fedavg import fedavg
from scafflix.methods.gd import gd
from scafflix.methods.i_scaffnew import i_scaffnew
from scafflix.methods.method import Client, Method
from scafflix.methods.nesterov import nesterov
from scafflix.methods.scafflix import scafflix
from scafflix.methods.scaffnew import scaffnew
from scafflix.methods.sgd import sgd

METHODS: dict[str, Callable[..., Method]] = {
    method.__name__: method
    for method in (scafflix, i_scaffnew, scaffnew, gd, sgd, fedavg, nesterov)
}


def find(name: str) -> Callable[..., Method]:
    """A method by its name, or one of a user's own by FILE.py:FUNCTION; options may follow."""
    instance("method", name, str, f"one of {', '.join(METHODS)}, or FILE.py:FUNCTION")
    name = specs.read(name).name
    if name in METHODS:
        return METHODS[name]
    if ".py:" in name:
        found: Callable[..., Method] = find_function(name, "method")
        return found
    raise ScafflixError(
        f"method is {name!r}; it must be one of {', '.join(METHODS)}, or FILE.py:FUNCTION."
    )


def parameters(method: Callable[..., Method]) -> tuple[str, ...]:
    """The hyperparameters that a method's constructor takes besides a plan and stepsizes.

    >>> parameters(scafflix), parameters(gd)
    (('p', 'pace'), ())
    """
    try:
        names = signature(method).parameters
    except (TypeError, ValueError):  # no function, or one of another language
        raise ScafflixError(
            f"method is {shown(method)}; give a function that makes a method."
        ) from None
    return tuple(name for name in names if name not in ("plan", "stepsize"))


__all__ = [
    "METHODS",
    "Client",
    "Method",
    "fedavg",
    "find",
    "gd",
    "i_scaffnew",
    "nesterov",
    "parameters",
    "scafflix",
    "scaffnew",
    "sgd",
]
