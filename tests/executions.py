"""What all executions of a method share: who takes part, K, and gradients at several points."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray

import miniature
from scafflix.algorithm import Round
from scafflix.core import streams
from scafflix.core.streams import Stream
from scafflix.methods import Client, Method
from scafflix.simulate.batch import own_steps, steps_of, uniforms
from scafflix.simulate.cohorts import cohort_of


def schedule(
    method: Method, clients: Client, seed: int, rounds: int, cohort: int | None = None
) -> list[Round]:
    """The rounds of a seed, as every execution draws them."""
    n = len(clients.alpha)
    steps = steps_of(method, seed, 0, rounds)
    key, server = (streams.key(seed, one) for one in (Stream.COMPRESSION, Stream.SERVER))
    made = []
    for r, K in enumerate(steps.tolist()):
        chosen = range(n) if cohort is None else cohort_of(seed, r, np.arange(n), cohort).tolist()
        own: dict[int, int] = {}
        if method.own_steps is not None:
            drawn = own_steps(method, clients, K, uniforms(seed, r, np.arange(n), n))
            own = {i: int(drawn[i]) for i in chosen}
        keys = [jax.random.fold_in(one, r) for one in (key, server)]
        made.append(Round(K, chosen, keys[0], own, keys[1]))
    return made


def several(gradient: Callable[[Any], Any], points: Any) -> Any:
    """The gradient at a point, or at each point of a tuple."""
    return tuple(map(gradient, points)) if isinstance(points, tuple) else gradient(points)


def softmax_gradient(small: Any, i: int, params: Any) -> Any:
    """grad f_i of softmax regression with a bias, written out."""
    part = small.federation.train
    rows = slice(part.offsets[i], part.offsets[i + 1])
    A = np.asarray(part.features[rows], float)
    weight = np.asarray(params["layer0"]["weight"], float)
    bias = np.asarray(params["layer0"]["bias"], float)
    odds = np.exp(A @ weight + bias)
    d: NDArray[np.float64] = odds / odds.sum(axis=1, keepdims=True)
    d = (d - np.eye(miniature.CLASSES)[part.labels[rows]]) / len(A)
    gradient = {"bias": d.sum(axis=0), "weight": A.T @ d}
    return {
        "layer0": {
            name: (gradient[name] + small.l2 * value).astype(np.float32)
            for name, value in (("bias", bias), ("weight", weight))
        }
    }
