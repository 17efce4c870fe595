"""The methods, each in a file of its own; a new one is a file and a line here."""

from collections.abc import Callable
from inspect import signature

from scafflix.core import specs
from scafflix.core.arguments import instance, shown
from scafflix.core.errors import ScafflixError
from scafflix.core.plugins import find_function
from scafflix.methods.apfl import apfl
from scafflix.methods.compressed_scaffnew import compressed_scaffnew
from scafflix.methods.ditto import ditto
from scafflix.methods.fedavg import fedavg
from scafflix.methods.fedbn import fedbn
from scafflix.methods.feddyn import feddyn
from scafflix.methods.fedlin import fedlin
from scafflix.methods.fedper import fedper
from scafflix.methods.fedprox import fedprox
from scafflix.methods.fedrep import fedrep
from scafflix.methods.finetuning import finetuning
from scafflix.methods.five_gcs import five_gcs
from scafflix.methods.gd import gd
from scafflix.methods.gradskip import gradskip
from scafflix.methods.i_scaffnew import i_scaffnew
from scafflix.methods.l2gd import l2gd
from scafflix.methods.locodl import locodl
from scafflix.methods.method import Client, Method
from scafflix.methods.mr_mtl import mr_mtl
from scafflix.methods.nesterov import nesterov
from scafflix.methods.per_fedavg import per_fedavg
from scafflix.methods.pfedme import pfedme
from scafflix.methods.s_local_svrg import s_local_svrg
from scafflix.methods.scafflix import scafflix
from scafflix.methods.scaffnew import scaffnew
from scafflix.methods.scaffold import scaffold
from scafflix.methods.sgd import sgd
from scafflix.methods.tamuna import tamuna

METHODS: dict[str, Callable[..., Method]] = {
    method.__name__: method
    for method in (
        *(scafflix, i_scaffnew, scaffnew, gradskip),  # with control variates
        *(scaffold, fedlin, s_local_svrg, feddyn, five_gcs),  # and with their mean at the server
        *(compressed_scaffnew, tamuna, locodl),  # with compressed messages
        *(gd, sgd, nesterov, fedavg, fedprox),
        *(ditto, mr_mtl, pfedme, apfl, l2gd),  # with a model of each client's own
        *(finetuning, per_fedavg),  # which each makes at the end
        *(fedper, fedrep, fedbn),  # some of whose arrays stay at home
    )
}

# a kind of gradient here, and no method of its own
PROXSKIP_VR = "scaffnew or scafflix with --batch B --reduced, as any method can be"


def find(name: str) -> Callable[..., Method]:
    """A method by its name, or one of a user's own by FILE.py:FUNCTION; options may follow."""
    instance("method", name, str, f"one of {', '.join(METHODS)}, or FILE.py:FUNCTION")
    name = specs.read(name).name
    if name in METHODS:
        return METHODS[name]
    if ".py:" in name:
        found: Callable[..., Method] = find_function(name, "method")
        return found
    if name == "proxskip_vr":
        raise ScafflixError(f"{name} is {PROXSKIP_VR}; give one of these as the method.")
    raise ScafflixError(
        f"method is {name!r}; it must be one of {', '.join(METHODS)}, or FILE.py:FUNCTION."
    )


def parameters(method: Callable[..., Method]) -> tuple[str, ...]:
    """The hyperparameters that a method's constructor takes besides a plan and stepsizes.

    >>> parameters(scafflix), parameters(gd)
    (('p', 'pace', 'cap'), ())
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
    "apfl",
    "compressed_scaffnew",
    "ditto",
    "fedavg",
    "fedbn",
    "feddyn",
    "fedlin",
    "fedper",
    "fedprox",
    "fedrep",
    "find",
    "finetuning",
    "five_gcs",
    "gd",
    "gradskip",
    "i_scaffnew",
    "l2gd",
    "locodl",
    "mr_mtl",
    "nesterov",
    "parameters",
    "per_fedavg",
    "pfedme",
    "s_local_svrg",
    "scafflix",
    "scaffnew",
    "scaffold",
    "sgd",
    "tamuna",
]
