"""Layers of matrix products with rectifiers between them; without hidden ones, softmax
regression."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise

import jax
import jax.numpy as jnp
from jax import Array

from scafflix.core.arguments import shown, whole_number
from scafflix.core.errors import ScafflixError
from scafflix.models.network import Network, Params


def dense(features: int, classes: int, hidden: Sequence[int] = (64,)) -> Network:
    """A network on rows of numbers, from the start of He et al. (2015)."""
    if not isinstance(hidden, list | tuple):
        raise ScafflixError(f"hidden is {shown(hidden)}; give a list of widths of layers.")
    return _dense(
        whole_number("features", features, least=1),
        whole_number("classes", classes, least=1),
        tuple(whole_number("hidden", width, least=1) for width in hidden),
    )


@lru_cache  # the same network for the same numbers, so that programs are compiled once
def _dense(features: int, classes: int, hidden: tuple[int, ...]) -> Network:
    widths = list(pairwise((features, *hidden, classes)))

    def init(key: Array) -> Params:
        keys = jax.random.split(key, len(widths))
        return {
            f"layer{number}": {
                "weight": jax.random.normal(k, (fan_in, fan_out), jnp.float32)
                * jnp.float32((2 / fan_in) ** 0.5),
                "bias": jnp.zeros(fan_out, jnp.float32),
            }
            for number, (k, (fan_in, fan_out)) in enumerate(zip(keys, widths, strict=True))
        }

    def apply(params: Params, inputs: Array) -> Array:
        x = inputs.astype(params["layer0"]["weight"].dtype).reshape(len(inputs), -1)
        for number in range(len(widths)):
            layer = params[f"layer{number}"]
            x = jnp.dot(jax.nn.relu(x) if number else x, layer["weight"]) + layer["bias"]
        return x

    return Network("dense", init, apply, linear_model="" if hidden else "softmax")
