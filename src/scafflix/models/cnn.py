"""The convolutional network of the FEMNIST experiments, written for speed on CPUs.

XLA's own convolution inside a loop is some seventy times slower on CPUs than a product of patches
and weights; Winograd's products save another third of a step. Weights are stored `[out, ...]`
because the weight gradient of patches is then `slopes^T @ patches`, 1.8 times as fast on one core
as its transpose. Nothing has a derivative rule of its own, so every mode of differentiation works.
"""

from __future__ import annotations

from functools import lru_cache, reduce

import jax
import jax.numpy as jnp
from jax import Array

from scafflix.core.arguments import whole_number
from scafflix.models.network import Network, Params

SIDE = 28  # pixels
POOLED = (SIDE - 4) // 2  # side of the image after both convolutions and the pool


def convolve(images: Array, weights: Array) -> Array:
    """3x3 convolution without padding: `[batch, h, w, in]`, `[out, 3, 3, in]`."""
    batch, h, w, channels = images.shape
    patches = jnp.concatenate(
        [images[:, i : i + h - 2, j : j + w - 2] for i in range(3) for j in range(3)], axis=-1
    )
    rows = patches.reshape(-1, 9 * channels) @ weights.reshape(-1, 9 * channels).T
    return rows.reshape(batch, h - 2, w - 2, len(weights))


def _larger(a: Array, b: Array) -> Array:
    return jnp.where(a >= b, a, b)  # a tie sends its whole slope to the first


# Winograd's F(2, 3): two outputs of a filter of three from four products instead of six
def _of_inputs(a: Array, b: Array, c: Array, d: Array) -> tuple[Array, ...]:
    return a - c, b + c, c - b, b - d


def _of_weights(a: Array, b: Array, c: Array) -> tuple[Array, ...]:
    return a, (a + b + c) / 2, (a - b + c) / 2, c


def _to_outputs(a: Array, b: Array, c: Array, d: Array) -> tuple[Array, ...]:
    return a + b + c, b - c - d


def convolve_and_pool(images: Array, weights: Array) -> Array:
    """The largest output of the convolution in each 2x2 window; `h` and `w` are even.

    In both directions at once, F(2, 3) makes the four outputs of a window, which the pool reduces
    to one, from 16 products instead of 36.
    """
    batch, h, w, channels = images.shape
    cells = images.reshape(batch, h // 2, 2, w // 2, 2, channels)
    upper, lower = cells[:, :-1], cells[:, 1:]  # a window sees two cells each way
    tiles = [
        _of_inputs(row[:, :, :-1, 0], row[:, :, :-1, 1], row[:, :, 1:, 0], row[:, :, 1:, 1])
        for row in _of_inputs(upper[:, :, 0], upper[:, :, 1], lower[:, :, 0], lower[:, :, 1])
    ]
    filters = [_of_weights(*row) for row in _of_weights(*jnp.moveaxis(weights, 0, -1))]
    products = [
        [tile.reshape(-1, channels) @ kernel for tile, kernel in zip(*pair, strict=True)]
        for pair in zip(tiles, filters, strict=True)
    ]
    halves = zip(*(_to_outputs(*row) for row in products), strict=True)
    window = [output for half in halves for output in _to_outputs(*half)]
    return reduce(_larger, window).reshape(batch, h // 2 - 1, w // 2 - 1, len(weights))


def _apply(params: Params, images: Array) -> Array:
    first, second, hidden, output = (
        params[name] for name in ("conv1", "conv2", "hidden", "output")
    )
    dtype = first["weight"].dtype
    ink = 1 - images[..., None].astype(dtype) / 255  # white is 255 in the data, ink is 1 here
    edges = jax.nn.relu(convolve(ink, first["weight"]) + first["bias"])
    # the pool commutes with bias and relu, which are then done on a quarter of the numbers
    shapes = jax.nn.relu(convolve_and_pool(edges, second["weight"]) + second["bias"])
    flat = shapes.reshape(len(images), POOLED * POOLED * 64)
    features = jax.nn.relu(flat @ hidden["weight"] + hidden["bias"])
    return features @ output["weight"] + output["bias"]


def cnn(classes: int = 62) -> Network:
    """Two 3x3 convolutions (32, 64), a 2x2 max-pool, 128 hidden units; 1,206,590 parameters.

    Takes uint8 images `[batch, 28, 28]`, white = 255. Weights begin with He's normal distribution
    (variance 2 / fan-in) before a relu and with Glorot's (2 / (fan-in + fan-out)) before the
    logits, biases at zero.
    """
    return _cnn(whole_number("classes", classes, least=1))


@lru_cache  # the same network for the same numbers, so that programs are compiled once
def _cnn(classes: int) -> Network:
    def init(key: Array) -> Params:
        keys = jax.random.split(key, 4)
        he = jax.nn.initializers.he_normal(in_axis=(1, 2, 3), out_axis=0)
        dense = jax.nn.initializers.he_normal()
        glorot = jax.nn.initializers.glorot_normal()

        def layer(weight: Array, outputs: int) -> dict[str, Array]:
            return {"weight": weight, "bias": jnp.zeros(outputs, jnp.float32)}

        return {
            "conv1": layer(he(keys[0], (32, 3, 3, 1), jnp.float32), 32),
            "conv2": layer(he(keys[1], (64, 3, 3, 32), jnp.float32), 64),
            "hidden": layer(dense(keys[2], (POOLED * POOLED * 64, 128), jnp.float32), 128),
            "output": layer(glorot(keys[3], (128, classes), jnp.float32), classes),
        }

    return Network("cnn", init, _apply)
