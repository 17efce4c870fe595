"""Models by name: `logistic`, `cnn`, `lstm:units=64`, `FILE.py:NAME`."""

from __future__ import annotations

import inspect

import jax

from scafflix.core.errors import ScafflixError
from scafflix.core.vector import names_of
from scafflix.models import (
    MODELS,
    NETWORKS,
    LinearModel,
    Network,
    TorchNetwork,
    is_network,
    is_own,
)
from scafflix.models.network import STEPSIZE
from scafflix.models.pytorch import torch_network, trained_names

SIZED = ("dense",)  # networks whose size is that of the data


def check_model(model: str) -> None:
    """Refuse a model that nobody knows, or options that a network does not have."""
    if is_own(model):
        torch_network(model)
    elif is_network(model):
        network_options(model)
    elif model not in MODELS:
        raise ScafflixError(
            f"model is {model!r}; it must be one of {', '.join((*MODELS, *NETWORKS))}, or "
            "FILE.py:NAME of a PyTorch module."
        )


def network_options(model: str) -> tuple[str, dict[str, int]]:
    """The name of a network and its options, from `lstm` or `lstm:units=64,layers=1`."""
    name, _, words = model.partition(":")
    options: dict[str, int] = {}
    for word in filter(None, words.split(",")):
        key, _, value = word.partition("=")
        if not value.isdecimal():
            raise ScafflixError(f"model is {model!r}; give its options as KEY=NUMBER,...")
        options[key.strip()] = int(value)
    allowed = inspect.signature(NETWORKS[name]).parameters
    if not set(options) <= set(allowed):
        raise ScafflixError(f"model is {model!r}; {name} has the options {', '.join(allowed)}.")
    return name, options


def model_by_name(model: str, features: int, classes: int) -> LinearModel | Network | TorchNetwork:
    """The model of that name; where its size is that of the data, of this one."""
    check_model(model)
    if is_own(model):
        return torch_network(model)
    if not is_network(model):
        return MODELS[model]()
    name, options = network_options(model)
    sizes = {"features": features, "classes": classes} if name in SIZED else {}
    return NETWORKS[name](**{**options, **sizes})


def usual_stepsize(model: str) -> float:
    """That of a network by name, or of a module by any.

    >>> usual_stepsize("lstm:units=64"), usual_stepsize("my/model.py:Net")
    (1.0, 0.1)
    """
    if model.partition(":")[0] not in NETWORKS:
        return STEPSIZE
    made = model_by_name(model, 1, 1)
    assert isinstance(made, Network)
    return made.stepsize


def array_names(model: str) -> tuple[str, ...]:
    """The names of a model's arrays, whatever the data."""
    made = model_by_name(model, 1, 1)
    if isinstance(made, LinearModel):
        return ("",)
    if isinstance(made, TorchNetwork):
        return trained_names(made)
    return names_of(jax.eval_shape(made.init, jax.random.key(0)))
