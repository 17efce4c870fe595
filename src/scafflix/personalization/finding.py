"""SGD from the points of some clients, each on its own examples: in one program, or in PyTorch."""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.sharding import Mesh
from numpy.typing import NDArray

from scafflix.core import streams
from scafflix.core.sharing import for_each, gather
from scafflix.core.streams import Stream
from scafflix.models.network import Network, Params
from scafflix.personalization.recipe import Recipe
from scafflix.problems.problem import Problem
from scafflix.problems.rows import Rows, Spans, batch_rows, first_rows, objective

VALIDATION_ROWS = 100  # at most, of a client, for stopping early


class Dials(NamedTuple):
    """What may change without compiling anew."""

    rate: Any
    made: Any  # looks before
    looks: Any  # at most
    patience: Any
    key: Array


class Found(NamedTuple):
    """The best point of each client, its validation loss, and the steps it took."""

    x: Params
    loss: Any
    steps: Any


def find(
    problem: Problem,
    points: Params,
    recipe: Recipe,
    rate: float,
    clients: NDArray[np.int64],
    at_once: int,
    made: int = 0,
    numbers: NDArray[np.int64] | None = None,
) -> Found:
    """Some clients from their points after so many looks, with others filling up the devices; only
    theirs is returned, in NumPy. They draw by their numbers, which on a node are not 0, 1, ..."""
    if problem.torch is not None:
        from scafflix.personalization import searching

        return searching.find(problem.torch, points, recipe, rate, clients, made)
    places = np.resize(np.arange(len(clients)), at_once)
    filled = clients[places]
    held_out = problem.parts["validation"]
    found = _search(
        problem.in_jax,
        problem.l2,
        problem.mesh,
        recipe.batch,
        recipe.check,
        min(VALIDATION_ROWS, int(held_out.counts.max())),
        problem.train.rows,
        held_out.rows,
        (
            problem.train.spans(filled),
            held_out.spans(filled),
            filled.astype(np.int32) if numbers is None else numbers[places].astype(np.int32),
            jax.tree.map(lambda leaf: np.asarray(leaf)[places], points),
        ),
        Dials(
            np.float32(rate),
            np.int32(made),
            np.int32(recipe.looks),
            np.int32(recipe.patience),
            streams.key(recipe.seed, Stream.OPTIMA),
        ),
    )
    return jax.tree.map(lambda leaf: leaf[: len(clients)], gather(found))


@partial(
    jax.jit,
    static_argnames=("network", "l2", "mesh", "batch", "check", "validation_rows"),
)
def _search(
    network: Network,
    l2: float,
    mesh: Mesh,
    batch: int,
    check: int,
    validation_rows: int,
    train: Rows,
    validation: Rows,
    clients: tuple[Spans, Spans, Array, Params],
    dials: Dials,
) -> Found:
    """SGD at each client until its validation loss has not fallen for a while, or to the end."""
    loss = partial(objective, network, l2)

    def at_client(
        common: tuple[Rows, Rows, Dials], one: tuple[Spans, Spans, Array, Params]
    ) -> Found:
        train, validation, dials = common
        mine, held_out, number, start = one
        key = jax.random.fold_in(dials.key, number)
        seen = first_rows(validation, *held_out, validation_rows)

        def step(k: Array, x: Params) -> Params:
            chosen = batch_rows(train, *mine, batch, jax.random.fold_in(key, k))
            g, _ = jax.grad(loss, has_aux=True)(x, *chosen)
            return jax.tree.map(lambda a, b: a - dials.rate * b, x, g)

        def look(carry: tuple[Params, Found, Array, Array]) -> tuple[Params, Found, Array, Array]:
            x, best, number, since = carry
            x = jax.lax.fori_loop(number * check, (number + 1) * check, step, x)
            _, value = loss(x, *seen)
            better = (value < best.loss) | (to_the_end & jnp.isfinite(value))  # never of NaN
            kept = jax.tree.map(
                lambda new, old: jnp.where(better, new, old),
                Found(x, value, (number + 1) * check),
                best,
            )
            return x, kept, number + 1, jnp.where(better, 0, since + 1)

        zero, to_the_end = jnp.int32(0), dials.patience == 0
        first = Found(start, loss(start, *seen)[1], dials.made * check)
        _, best, _, _ = jax.lax.while_loop(
            lambda carry: (carry[2] < dials.looks) & (to_the_end | (carry[3] < dials.patience)),
            look,
            (start, first, dials.made, zero),
        )
        return best

    return for_each(mesh, at_client, (train, validation, dials), clients)
