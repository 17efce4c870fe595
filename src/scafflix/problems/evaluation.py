"""How good models are for each client: the global one, the local ones, the mixtures.

Rows are cut into blocks; a block goes through one model, and the devices share the blocks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import numpy as np
from jax import Array
from jax.sharding import Mesh
from jax.tree_util import Partial
from numpy.typing import NDArray

from scafflix.core.compilation import SIMPLE_LOOPS
from scafflix.core.sharing import for_each, gather, replicate, side_by_side
from scafflix.core.store import Store
from scafflix.core.vector import Vector
from scafflix.models.calibration import BINS, SUMS, binned
from scafflix.models.network import Network, Params, parameter_count, tallies_of
from scafflix.problems.problem import Problem
from scafflix.problems.rows import Part, Rows, first_rows

BLOCK = 16  # examples that go through one model together: few enough for a core's cache
AT_ONCE = 8  # clients whose models are read together, at least
READ_AT_ONCE = 2**20  # numbers of such models
BLOCKS_A_CALL = 4  # for each device, at least


class Scores(NamedTuple):
    """Per client; NaN for one without examples."""

    loss: NDArray[np.float64]
    score: NDArray[np.float64]
    entries: NDArray[np.float64]  # how many count: examples, or characters to predict


class Examined(NamedTuple):
    """What models made of the examples of a part."""

    loss: NDArray[Any]  # [rows], sums over an example's entries
    score: NDArray[Any]  # the same
    entries: NDArray[Any]  # how many of an example count
    bins: NDArray[np.float64]  # [3, BINS], forecasts over all examples, as `calibration` has them

    def per_client(self, owners: NDArray[np.int64], clients: int) -> Scores:
        """Means over the entries of each client."""
        columns = (self.loss, self.score, self.entries)
        loss, score, entries = (
            np.bincount(owners, values, clients).astype(float) for values in columns
        )
        with np.errstate(invalid="ignore"):
            return Scores(loss / entries, score / entries, entries)


class Blocks(NamedTuple):
    """Consecutive rows that go through one model."""

    slot: NDArray[np.int32]  # [blocks], the place of the model
    first: NDArray[np.int32]  # [blocks], the first row
    length: NDArray[np.int32]  # [blocks], how many rows


class Home(NamedTuple):
    """What clients take home, as a function of what they are, what they remember, and x."""

    personal: Any  # (client, state, x) -> model, a JAX tree
    clients: Any  # what a method knows of all of them, without their local optima
    states: Store | None = None  # of all of them, where it matters
    # (who some of them are, these clients, their states) -> x_i of each, where all start from x
    # and tune it by themselves
    tuned: Callable[[NDArray[Any], Any, Any], Params] | None = None


class _Alone(NamedTuple):
    x_star: Any = None


def _own_model(client: _Alone, state: Any, x: Vector) -> Vector:
    star: Vector = client.x_star
    return star


ALONE = Home(Partial(_own_model), _Alone())  # every client its x_i*


def evaluate(
    problem: Problem,
    part: str,
    x: Params,
    home: Home | None = None,
    x_star: Store | None = None,
) -> Scores:
    """Loss and score on each client's part, of x or of what the client takes home."""
    found = examine(problem, part, x, home, x_star)
    return found.per_client(problem.parts[part].owners, problem.n)


def examine(
    problem: Problem,
    part: str,
    x: Params,
    home: Home | None = None,
    x_star: Store | None = None,
    some: NDArray[np.int64] | None = None,
) -> Examined:
    """The same for every example; what is taken home may be that of some clients only."""
    if home is not None:
        (found,) = examine_each(problem, part, x, [home], x_star, some)
        return found
    chosen = problem.parts[part]
    found = _empty(problem, chosen)
    if problem.torch is not None:
        from scafflix.problems.tallying import put_tallies

        everyone = np.flatnonzero(chosen.counts)
        found.bins[...] += put_tallies(found[:3], problem.torch, part, everyone, x)
    else:
        blocks = _cut(np.zeros(1), chosen.first[:1], chosen.counts.sum(keepdims=True))
        _put(found, problem, chosen, x, None, None, blocks)
    return found


def examine_each(
    problem: Problem,
    part: str,
    x: Params,
    homes: Sequence[Home],
    x_star: Store | None = None,
    some: NDArray[np.int64] | None = None,
) -> list[Examined]:
    """The same for each of several things to take home; local optima are read once for all."""
    chosen = problem.parts[part]
    found = [_empty(problem, chosen) for _ in homes]
    everyone = np.flatnonzero(chosen.counts)
    if some is not None:
        everyone = np.intersect1d(everyone, some)
    at_once = max(1, clients_at_once(problem, len(everyone)))
    for start in range(0, len(everyone), at_once):
        those = everyone[start : start + at_once]
        if problem.torch is not None:
            from scafflix.problems.tallying import put_tallies

            stars = _stars(x_star, those)
            for home, one in zip(homes, found, strict=True):
                takes = home.personal, _of_some(home, stars, those)
                one.bins[...] += put_tallies(one[:3], problem.torch, part, those, x, takes)
            continue
        clients = np.resize(those, at_once)
        blocks = _cut(np.arange(len(those)), chosen.first[those], chosen.counts[those])
        stars = replicate(problem.mesh, _stars(x_star, clients))
        for home, one in zip(homes, found, strict=True):
            taken = replicate(problem.mesh, _of_some(home, stars, clients))
            _put(one, problem, chosen, x, home.personal, taken, blocks)
    return found


def _empty(problem: Problem, part: Part) -> Examined:
    loss, score, entries = np.zeros((3, len(part.owners)), problem.dtype)
    return Examined(loss, score, entries, np.zeros((len(SUMS), BINS)))


def clients_at_once(problem: Problem, clients: int) -> int:
    """How many of as many clients have their models in memory together."""
    return min(max(AT_ONCE, READ_AT_ONCE // problem.size), clients)


def _stars(x_star: Store | None, clients: NDArray[Any]) -> Vector | None:
    """The local optima of some clients."""
    return None if x_star is None else Vector(x_star.read(clients))


def _of_some(home: Home, stars: Vector | None, clients: NDArray[Any]) -> Any:
    """Some clients with their local optima, their states, and each one's x."""
    mine = jax.tree.map(lambda leaf: leaf[clients], home.clients)._replace(x_star=stars)
    states = None if home.states is None else home.states.read(clients)
    points = None if home.tuned is None else home.tuned(clients, mine, states)
    return mine, states, points


def _cut(slots: NDArray[Any], first: NDArray[Any], count: NDArray[Any]) -> Blocks:
    """Ranges of rows, cut into blocks."""
    number = -(-count // BLOCK)
    inside = np.arange(number.sum()) - np.repeat(np.cumsum(number) - number, number)
    fields = (
        np.repeat(slots, number),
        np.repeat(first, number) + BLOCK * inside,
        np.minimum(BLOCK, np.repeat(count, number) - BLOCK * inside),
    )
    return Blocks(*(field.astype(np.int32) for field in fields))


def _put(
    found: Examined,
    problem: Problem,
    part: Part,
    x: Params,
    personal: Any,
    taken: Any,
    blocks: Blocks,
) -> None:
    """Put what is made of the blocks' rows in its place."""
    a_call = (side_by_side(problem.size) or BLOCKS_A_CALL) * problem.mesh.size
    for start in range(0, len(blocks.slot), a_call):
        some = Blocks(*(field[start : start + a_call] for field in blocks))
        filled = Blocks(*(np.pad(field, (0, a_call - len(field))) for field in some))
        *made, bins = gather(
            _tallies(problem.in_jax, problem.mesh, part.rows, x, personal, taken, filled)
        )
        place = np.arange(BLOCK)
        real = place < filled.length[:, None]
        row = (filled.first[:, None] + place)[real]
        for column, values in zip(found, made, strict=False):
            column[row] = values[real]
        found.bins[...] += bins.sum(axis=0, dtype=float)


@partial(jax.jit, static_argnames=("network", "mesh"), compiler_options=SIMPLE_LOOPS)
def _tallies(
    network: Network,
    mesh: Mesh,
    rows: Rows,
    x: Params,
    personal: Any,
    taken: Any,
    blocks: Blocks,
) -> tuple[Array, ...]:
    """Loss, score and count of every row, `[blocks, BLOCK]`, and each block's forecasts in bins."""

    def one(common: tuple[Rows, Params, Any, Any], block: Blocks) -> tuple[Array, ...]:
        rows, params, personal, taken = common
        if personal is not None:
            client, state, own = jax.tree.map(lambda leaf: leaf[block.slot], taken)
            params = personal(client, state, Vector(params if own is None else own)).tree
        inputs, labels = first_rows(rows, block.first, block.length, BLOCK)
        logits = network.apply(params, inputs)
        return *tallies_of(network, logits, labels), binned(network, logits, labels)

    together = side_by_side(parameter_count(x))
    return for_each(mesh, one, (rows, x, personal, taken), blocks, together)


def over_examples(values: NDArray[np.float64], scores: Scores) -> float:
    """A mean over all examples, from values that are means over each client's."""
    known = scores.entries > 0
    return float(np.average(values[known], weights=scores.entries[known]))
