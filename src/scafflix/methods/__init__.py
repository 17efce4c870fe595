"""The methods, each in a file of its own; a new one is a file and a line here."""

from collections.abc import Callable

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

PACED = ("scafflix", "i_scaffnew", "scaffnew")  # those whose control variates have a pace

__all__ = [
    "METHODS",
    "PACED",
    "Client",
    "Method",
    "fedavg",
    "gd",
    "i_scaffnew",
    "nesterov",
    "scafflix",
    "scaffnew",
    "sgd",
]
