"""A user's module as it is made: with a seed, in float32, and refused if it cannot be averaged."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from scafflix.core.errors import ScafflixError
from scafflix.models.pytorch import TorchNetwork, made_module, place_of


def start_of(network: TorchNetwork, seed: int) -> OrderedDict[str, NDArray[np.float32]]:
    """The trained parameters of a module that is made with a seed."""
    named = seeded_module(network, seed).named_parameters()
    return OrderedDict((name, p.detach().numpy().copy()) for name, p in named if p.requires_grad)


def seeded_module(network: TorchNetwork, seed: int) -> nn.Module:
    """A new one, made after `torch.manual_seed(seed)`; the caller's generator is left as it was."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return _suitable(made_module(network), network)


def _suitable(module: Any, network: TorchNetwork) -> nn.Module:
    """The module in float32, if it can be averaged."""
    where = place_of(network.make)
    if not isinstance(module, nn.Module):
        raise ScafflixError(
            f"{where}The function for the module returns a {type(module).__name__}; it must return "
            "a torch.nn.Module."
        )
    for name, parameter in module.named_parameters():
        if nn.parameter.is_lazy(parameter):
            raise ScafflixError(
                f"{where}The parameter {name} has no shape yet; pass a batch through the module in "
                "the function that makes it."
            )
        if parameter.is_complex() or (parameter.requires_grad and parameter.ndim == 0):
            raise ScafflixError(
                f"{where}The parameter {name} is "
                f"{'complex' if parameter.is_complex() else 'a scalar'}; it must be a real array; "
                "use a real type, and give a scalar the shape (1,)."
            )
    if not any(parameter.requires_grad for parameter in module.parameters()):
        raise ScafflixError(
            f"{where}The module has nothing to train; set requires_grad for at least one parameter."
        )
    return module.cpu().float()
