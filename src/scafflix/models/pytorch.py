"""Modules of PyTorch as networks. PyTorch is an optional extra: `scafflix[torch]`.

Nothing here imports PyTorch before a module is made.
"""

from __future__ import annotations

import inspect
import traceback
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from types import CodeType
from typing import TYPE_CHECKING, Any, NamedTuple

from scafflix.core.arguments import instance, shown
from scafflix.core.errors import ScafflixError, reason_of
from scafflix.core.plugins import find_function, module_of
from scafflix.models.network import STEPSIZE

if TYPE_CHECKING:
    from torch import Tensor, nn

MakeModule = Callable[[], "nn.Module"]
Loss = Callable[["Tensor", "Tensor"], "Tensor"]  # (outputs, labels) -> mean over a batch
Score = Callable[["Tensor", "Tensor"], "Tensor"]


class TorchNetwork(NamedTuple):
    """A function that makes a module, and what is trained and measured on its outputs.

    Without a loss of your own it is cross-entropy: the module then takes examples `[batch, ...]`,
    in float32, to logits `[batch, classes]`, or `[batch, length, classes]` with a label at every
    position, of which negative ones do not count.
    """

    name: str
    make: MakeModule
    loss: Loss | None = None
    score: Score | None = None
    metric: str = "accuracy"  # what `score` measures
    linear_model: str = ""  # of no module is it known that it is linear
    stepsize: float = STEPSIZE  # unless one is given


def from_torch(
    make: MakeModule, loss: Loss | None = None, score: Score | None = None, name: str | None = None
) -> TorchNetwork:
    """A PyTorch module for `sx.Problem`: its class, or a function, called without arguments.

    `loss` and `score` take the module's outputs and the labels to one number, the mean over the
    batch; by default they are cross-entropy and accuracy. Your own loss takes labels as they are.
    """
    if not callable(make) or _is_module(make):
        raise ScafflixError(
            f"from_torch takes a class or a function that makes a module, not {shown(make)}; every "
            "worker makes its own, so write `lambda: Net(...)` or name the class."
        )
    for what, function in (("loss", loss), ("score", score)):
        if function is not None and not callable(function):
            raise ScafflixError(f"{what} is {shown(function)}; give a function, or leave it out.")
    if name is None:
        name = str(getattr(make, "__name__", type(make).__name__))
    instance("name", name, str, "text")
    metric = "accuracy" if score is None else str(getattr(score, "__name__", "score"))
    return TorchNetwork(name, make, loss, score, metric.replace("_", " "))


def torch_network(spec: str) -> TorchNetwork:
    """The module that FILE.py:NAME names, with the functions `loss` and `score` of the same file
    where it has them."""
    need_torch()
    make, file = find_function(spec, "model"), module_of(spec)
    if isinstance(make, TorchNetwork):
        return make
    if not callable(make) or _is_module(make):
        raise ScafflixError(
            f"model is {spec!r}, which is {shown(make)}; name a class or a function that makes a "
            "torch.nn.Module."
        )
    own = {what: getattr(file, what, None) for what in ("loss", "score")}
    network = from_torch(make, **own, name=spec)
    _check_arguments(network)
    return network


def _is_module(thing: object) -> bool:
    """Whether it is a module itself, found out without importing PyTorch."""
    return any(kind.__module__ == "torch.nn.modules.module" for kind in type(thing).__mro__)


def need_torch() -> None:
    """Refuse where PyTorch is absent."""
    if find_spec("torch") is None:
        raise ScafflixError("PyTorch is not installed; run: pip install 'scafflix[torch]'")


def made_module(network: TorchNetwork) -> nn.Module:
    """A new module; refuse what cannot be made without arguments."""
    _check_arguments(network)
    try:
        return network.make()
    except Exception as error:
        raise explained(error, network.make, f"{network.name} cannot be made") from error


def trained_names(network: TorchNetwork) -> tuple[str, ...]:
    """The names of the parameters that are trained."""
    import torch

    with torch.random.fork_rng(devices=[]):
        named = made_module(network).named_parameters()
    return tuple(name for name, p in named if p.requires_grad)


def _check_arguments(network: TorchNetwork) -> None:
    try:
        known = inspect.signature(network.make).parameters.items()
    except (TypeError, ValueError):  # of what is not written in Python
        return
    any_number = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    needed = [n for n, one in known if one.default is one.empty and one.kind not in any_number]
    if needed:
        raise ScafflixError(
            f"{place_of(network.make)}{network.name} needs the arguments {', '.join(needed)}; name "
            "a function that makes the module without any."
        )


def explained(error: Exception, function: Any, what: str, advice: str = "") -> ScafflixError:
    """What went wrong in a user's own function, in one sentence with its file and line."""
    if isinstance(error, ScafflixError):
        return error
    code = _code_of(function)
    file, frames = code.co_filename if code else None, traceback.extract_tb(error.__traceback__)
    lines = [one.lineno for one in frames if one.filename == file]
    where = f"{_shown_file(file)}, line {lines[-1]}: " if file and lines else place_of(function)
    return ScafflixError(f"{where}{what}: {reason_of(error)}.{advice}")


def place_of(thing: Any) -> str:
    """`FILE.py, line N: ` where a function, or the first one of a class, begins, if that is
    known."""
    code = _code_of(thing)
    return f"{_shown_file(code.co_filename)}, line {code.co_firstlineno}: " if code else ""


def source_texts(*things: Any) -> list[str]:
    """The files in which a user wrote these classes and functions, each once, as they are now; of
    what was written elsewhere, such as in PyTorch or at a prompt, as much as is known."""
    found: dict[str, str] = {}
    for thing in things:
        code = _code_of(thing)
        file = Path(code.co_filename) if code else None
        if file is not None and file.exists() and "site-packages" not in file.parts:
            found[str(file)] = file.read_text()
            continue
        name = f"{getattr(thing, '__module__', '')}.{getattr(thing, '__qualname__', '')}"
        try:
            found[name] = inspect.getsource(thing)
        except (OSError, TypeError):
            found[name] = name
    return [found[name] for name in sorted(found)]


def _code_of(thing: Any) -> CodeType | None:
    """The code of a function; of a class, that of the function that comes first in it."""
    if inspect.isclass(thing):
        found = [code for one in vars(thing).values() if (code := _code_of(one)) is not None]
        return min(found, key=lambda code: code.co_firstlineno, default=None)
    code = getattr(thing, "__code__", None)
    return code if isinstance(code, CodeType) else None


def _shown_file(name: str) -> str:
    """As short as it can be from here."""
    file, here = Path(name), Path.cwd()
    return str(file.relative_to(here)) if file.is_relative_to(here) else name
