"""The next-character LSTM of the Shakespeare experiments, with its own backward pass.

Autodiff of a scan adds one small product to the weight gradient at every time; here the slopes of
all times are kept and the weight gradient is one large product. The backward pass is itself
differentiable in reverse: for a Hessian-vector product take the gradient of <gradient, v>
(`jax.jvp` through the network raises).
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array, lax

from scafflix.core.arguments import whole_number
from scafflix.models.network import Network, Params


def _shift(values: Array) -> Array:
    """Values one time earlier, zero at the first."""
    return jnp.concatenate([jnp.zeros_like(values[:1]), values[:-1]])


def _forward(drive: Array, weight: Array) -> tuple[Array, Array, tuple[Array, ...]]:
    """States, cells and the four gates at all times."""

    def step(carry: tuple[Array, Array], drive_t: Array) -> tuple[tuple[Array, Array], Any]:
        state, cell = carry
        i, f, g, o = jnp.split(drive_t + state @ weight, 4, axis=-1)
        i, f, g, o = jax.nn.sigmoid(i), jax.nn.sigmoid(f), jnp.tanh(g), jax.nn.sigmoid(o)
        cell = f * cell + i * g
        state = o * jnp.tanh(cell)
        return (state, cell), (state, cell, (i, f, g, o))

    zero = jnp.zeros((drive.shape[1], len(weight)), drive.dtype)
    states, cells, gates = lax.scan(step, (zero, zero), drive)[1]
    return states, cells, gates


@jax.custom_vjp
def recur(drive: Array, weight: Array) -> Array:
    """States `[length, batch, n]` of an LSTM layer.

    `drive` `[length, batch, 4 n]` is what the inputs and the bias add to the gates (input, forget,
    candidate, output), `weight` `[n, 4 n]` what the state before adds.
    """
    return _forward(drive, weight)[0]


def _recur_forward(drive: Array, weight: Array) -> tuple[Array, tuple[Any, ...]]:
    states, cells, gates = _forward(drive, weight)
    return states, (states, cells, gates, weight)


def _recur_backward(kept: tuple[Any, ...], slopes: Array) -> tuple[Array, Array]:
    states, cells, gates, weight = kept
    # a transpose inside the loop would be done again at every time
    transposed = lax.optimization_barrier(weight.T)

    def step(carry: tuple[Array, Array], now: tuple[Any, ...]) -> tuple[tuple[Array, Array], Array]:
        d_state, d_cell = carry
        slope, cell, cell_before, (i, f, g, o) = now
        squashed = jnp.tanh(cell)
        d_state = d_state + slope
        d_cell = d_cell + d_state * o * (1 - squashed * squashed)
        d_drive = jnp.concatenate(
            [
                d_cell * g * i * (1 - i),
                d_cell * cell_before * f * (1 - f),
                d_cell * i * (1 - g * g),
                d_state * squashed * o * (1 - o),
            ],
            axis=-1,
        )
        return (d_drive @ transposed, d_cell * f), d_drive

    zero = jnp.zeros(states.shape[1:], states.dtype)
    times = (slopes, cells, _shift(cells), gates)
    d_drive = lax.scan(step, (zero, zero), times, reverse=True)[1]
    units, width = weight.shape
    d_weight = _shift(states).reshape(-1, units).T @ d_drive.reshape(-1, width)
    return d_drive, d_weight


recur.defvjp(_recur_forward, _recur_backward)


def _apply(params: Params, codes: Array) -> Array:
    batch, length = codes.shape
    values = params["embedding"][codes.T.astype(jnp.int32)].reshape(length * batch, -1)
    for layer in params["layers"]:
        drive = values @ layer["inputs"] + layer["bias"]
        states = recur(drive.reshape(length, batch, -1), layer["states"])
        values = states.reshape(length * batch, -1)
    logits = values @ params["output"]["weight"] + params["output"]["bias"]
    return logits.reshape(length, batch, -1).swapaxes(0, 1)


def lstm(symbols: int = 90, embedding: int = 8, units: int = 256, layers: int = 2) -> Network:
    """Next-character model: embedding 8, two LSTM layers of 256, logits at every position.

    Takes codes `[batch, length]` (uint8) below `symbols`; 820,522 parameters. Weights begin with
    Glorot's uniform distribution, the embedding with a normal one of variance 1 / embedding,
    biases at zero but the forget gate's at one.
    """
    asked = {"symbols": symbols, "embedding": embedding, "units": units, "layers": layers}
    return _lstm(*(whole_number(name, value, least=1) for name, value in asked.items()))


@lru_cache  # the same network for the same numbers, so that programs are compiled once
def _lstm(symbols: int, embedding: int, units: int, layers: int) -> Network:
    def init(key: Array) -> Params:
        glorot = jax.nn.initializers.glorot_uniform()
        keys = iter(jax.random.split(key, 2 + 2 * layers))
        forget = jnp.zeros((4, units), jnp.float32).at[1].set(1).ravel()
        code = jax.random.normal(next(keys), (symbols, embedding), jnp.float32)
        widths = [embedding] + [units] * (layers - 1)
        return {
            "embedding": code * jnp.float32(embedding**-0.5),
            "layers": [
                {
                    "inputs": glorot(next(keys), (width, 4 * units), jnp.float32),
                    "states": glorot(next(keys), (units, 4 * units), jnp.float32),
                    "bias": forget,
                }
                for width in widths
            ],
            "output": {
                "weight": glorot(next(keys), (units, symbols), jnp.float32),
                "bias": jnp.zeros(symbols, jnp.float32),
            },
        }

    return Network("lstm", init, _apply, stepsize=1.0)
