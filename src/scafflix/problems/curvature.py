"""The curvature L_i of each f_i at x_i*, by power iteration on Hessian-vector products.

A client needs only its own data and model for it: no communication.
"""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.sharding import Mesh
from numpy.typing import NDArray

from scafflix.core import streams
from scafflix.core.sharing import for_each, gather
from scafflix.core.store import Store
from scafflix.core.streams import Stream
from scafflix.core.vector import Vector
from scafflix.models.network import Network, Params
from scafflix.problems.problem import Problem
from scafflix.problems.rows import Rows, Spans, first_rows, objective

ROWS = 100  # at most, of a client
PRODUCTS = 12
AT_ONCE = 4  # clients for each device
LEAST = 0.1  # of the median: below it a flat spot is not taken for a licence to leap


def curvatures(problem: Problem, x_star: Store | Params) -> NDArray[np.float64]:
    """An estimate of the largest eigenvalue of the Hessian of every f_i, in absolute value."""
    if problem.torch is not None:
        return problem.torch.curvatures(x_star, ROWS, PRODUCTS)
    at_once = AT_ONCE * problem.mesh.size
    train, found = problem.train, np.zeros(problem.n)
    rows = min(ROWS, int(train.counts.max()))
    key = streams.key(0, Stream.OPTIMA)
    for start in range(0, problem.n, at_once):
        clients = np.arange(start, min(start + at_once, problem.n))
        filled = np.resize(clients, at_once)
        points = x_star.read(filled) if isinstance(x_star, Store) else _repeat(x_star, at_once)
        values = _power(
            problem.in_jax, problem.l2, problem.mesh, rows, train.rows, train.spans(filled),
            points, key,
        )  # fmt: skip
        found[clients] = gather(values)[: len(clients)]
    return found


def individual_stepsizes(stepsize: float, curvature: NDArray[np.float64]) -> NDArray[np.float64]:
    """gamma_i proportional to 1/L_i, the median client's being the given stepsize.

    >>> individual_stepsizes(0.1, np.array([1.0, 2.0, 4.0])).tolist()
    [0.2, 0.1, 0.05]
    """
    middle = float(np.median(curvature))
    if not middle > 0:  # flat everywhere: nothing to tell clients apart by
        return np.full(len(curvature), stepsize)
    return stepsize * middle / np.maximum(curvature, LEAST * middle)


def _repeat(x: Params, times: int) -> Params:
    return jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (times, *leaf.shape)), x)


@partial(jax.jit, static_argnames=("network", "l2", "mesh", "batch"))
def _power(
    network: Network,
    l2: float,
    mesh: Mesh,
    batch: int,
    rows: Rows,
    spans: Spans,
    points: Params,
    key: Array,
) -> Array:
    def at_client(common: tuple[Rows, Array], one: tuple[Spans, Params]) -> Array:
        (rows, key), (span, x) = common, one
        chosen = first_rows(rows, *span, batch)

        def gradient(x: Params) -> Params:
            return jax.grad(partial(objective, network, l2), has_aux=True)(x, *chosen)[0]

        def product(v: Params) -> Params:
            # reverse over reverse: a network may have its own backward pass
            return jax.grad(lambda x: _dot(gradient(x), v))(x)

        def improve(_: Array, carry: tuple[Params, Array]) -> tuple[Params, Array]:
            w = product(carry[0])
            size = jnp.sqrt(_dot(w, w))
            return ((1 / jnp.maximum(size, 1e-30)) * Vector(w)).tree, size

        leaves, structure = jax.tree.flatten(x)
        keys = jax.random.split(key, len(leaves))
        v = jax.tree.unflatten(
            structure,
            [
                jax.random.normal(k, leaf.shape, leaf.dtype)
                for k, leaf in zip(keys, leaves, strict=True)
            ],
        )
        v = ((1 / jnp.sqrt(_dot(v, v))) * Vector(v)).tree
        _, size = jax.lax.fori_loop(0, PRODUCTS, improve, (v, jnp.float32(0)))
        return size

    return for_each(mesh, at_client, (rows, key), (spans, points))


def _dot(a: Params, b: Params) -> Array:
    parts = jax.tree.map(jnp.vdot, a, b)
    return jnp.sum(jnp.stack(jax.tree.leaves(parts)))
