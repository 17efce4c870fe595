"""Models written with other libraries, as networks."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
from jax import Array
from numpy.typing import ArrayLike

from scafflix.core.arguments import instance, numbers
from scafflix.core.errors import ScafflixError
from scafflix.models.network import Network, Params


def from_flax(module: Any, example_inputs: ArrayLike, name: str | None = None) -> Network:
    """A `flax.linen` module whose call takes a batch of inputs to logits.

    `example_inputs` is a batch as the data holds it; only its shape and type matter. The module
    may hold parameters only: no dropout, no batch statistics.
    """
    try:
        from flax import linen
    except ImportError:
        raise ScafflixError("from_flax needs Flax; install it with `pip install flax`.") from None
    if not isinstance(module, linen.Module):
        raise ScafflixError(
            f"from_flax takes a flax.linen module, not {type(module).__name__}; "
            "pass an instance of your module."
        )
    numbers("example_inputs", example_inputs, finite=False)
    example = np.zeros_like(np.asarray(example_inputs))

    def init(key: Array) -> Params:
        variables = module.init(key, example)
        others = sorted(set(variables) - {"params"})
        if others:
            raise ScafflixError(
                f"The Flax module {type(module).__name__} keeps {', '.join(others)} besides its "
                "parameters; only modules with parameters alone can be trained."
            )
        return variables.get("params", {})

    def apply(params: Params, inputs: Array) -> Array:
        logits: Any = module.apply({"params": params}, inputs)
        return logits

    return Network(_named(name, module), init, apply)


def from_equinox(module: Any, name: str | None = None) -> Network:
    """An `equinox` module whose call takes one input to logits; its floating arrays are trained.

    A module instance holds its parameters already, so `init` returns them whatever the key.
    """
    try:
        import equinox as eqx
    except ImportError:
        raise ScafflixError(
            "from_equinox needs Equinox; install it with `pip install equinox`."
        ) from None
    if not isinstance(module, eqx.Module):
        raise ScafflixError(
            f"from_equinox takes an equinox.Module, not {type(module).__name__}; "
            "pass an instance of your module."
        )
    params, rest = eqx.partition(module, eqx.is_inexact_array)

    def init(key: Array) -> Params:
        return params

    def apply(params: Params, inputs: Array) -> Array:
        return jax.vmap(eqx.combine(params, rest))(inputs)

    return Network(_named(name, module), init, apply)


def _named(name: object, module: Any) -> str:
    return type(module).__name__ if name is None else instance("name", name, str, "text")
