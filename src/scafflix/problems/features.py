"""The rows of all clients on the device, and their product with every client's parameters.

Two layouts, one contract. W holds the parameters of n clients, `[n, dim, columns]`; the columns
are the runs of a sweep times the outputs of the model, so that one pass over the data serves all.

    dot(W)     [rows, columns]       row j of client i:  a_j W_i
    dot_t(R)   [n, dim, columns]     client i:           sum of a_j^T R_j over its rows j

`batch_dot` and `batch_dot_t` do the same for chosen rows `[runs, n, batch]` and x `[runs, n, ...]`.
Neither layout pads a client to the size of the largest.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial, reduce
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import NDArray
from scipy import sparse

from scafflix.data.federation import Examples

SPARSE_BELOW = 0.25  # share of nonzeros under which gathers beat matrix products on a CPU

Index = NDArray[np.int64]

_ROWS = jax.lax.GatherDimensionNumbers(
    offset_dims=(1,), collapsed_slice_dims=(0,), start_index_map=(0,)
)


@partial(jax.tree_util.register_dataclass, data_fields=["blocks", "owner"], meta_fields=["clients"])
@dataclass(frozen=True)
class DenseRows:
    """Rows cut into blocks of equal height, each owned by one client: matrix products."""

    blocks: Array  # [blocks, height, dim], a client's last block filled up with zeros
    owner: Array  # [blocks]
    clients: int

    def dot(self, W: Array) -> Array:
        Z = jnp.einsum("bhd,bdc->bhc", self.blocks, W[self.owner])
        return Z.reshape(-1, W.shape[-1])

    def dot_t(self, R: Array) -> Array:
        R = R.reshape(*self.blocks.shape[:2], -1)
        # columns before rows: XLA multiplies this shape twice as fast
        G = jnp.einsum("bhd,bch->bcd", self.blocks, R.swapaxes(1, 2)).swapaxes(1, 2)
        return jax.ops.segment_sum(G, self.owner, self.clients, indices_are_sorted=True)

    def batch_dot(self, rows: Array, x: Array) -> Array:
        return jnp.einsum("rnbd,rnd...->rnb...", self._chosen(rows), x)

    def batch_dot_t(self, rows: Array, R: Array) -> Array:
        return jnp.einsum("rnbd,rnb...->rnd...", self._chosen(rows), R)

    def _chosen(self, rows: Array) -> Array:
        return self.blocks.reshape(-1, self.blocks.shape[-1])[rows]


@partial(
    jax.tree_util.register_dataclass,
    data_fields=["index", "factor", "segment"],
    meta_fields=["segments"],
)
@dataclass(frozen=True)
class GroupedSum:
    """``out[s] = sum over the entries e of segment s of factor[e] * X[index[e]]``.

    Entries stand in groups of equal width. XLA fuses the gathers of a group into one loop,
    vectorized over columns; a scatter joins the groups of segments that need several.
    """

    index: tuple[Array, ...]  # for each place in a group, [groups, 1]
    factor: tuple[Array, ...]  # the same, 0 where a group is not full
    segment: Array | None  # [groups]; None where every segment is one group
    segments: int

    def __call__(self, X: Array) -> Array:
        def gather(X: Array) -> Array:
            rows = partial(
                jax.lax.gather,
                X,
                dimension_numbers=_ROWS,
                slice_sizes=(1, X.shape[1]),
                mode=jax.lax.GatherScatterMode.PROMISE_IN_BOUNDS,
            )
            terms = (rows(i) * f for i, f in zip(self.index, self.factor, strict=True))
            return reduce(jnp.add, terms)

        # a branch that is always taken: without it XLA fuses the computation of X into the
        # gathers and repeats it at every use
        groups = jax.lax.cond(self.index[0][0, 0] >= 0, gather, self._nothing, X)
        if self.segment is None:
            return groups
        return jax.ops.segment_sum(groups, self.segment, self.segments, indices_are_sorted=True)

    def _nothing(self, X: Array) -> Array:
        return jnp.zeros((len(self.index[0]), X.shape[1]))


def grouped_sum(
    index: Index, factor: NDArray[np.float64], segment: Index, segments: int
) -> GroupedSum:
    """Group entries whose segments are in increasing order; an empty segment has no group."""
    counts = np.bincount(segment, minlength=segments)
    width = _group_width(counts)
    groups = -(-counts // width)
    rank = np.arange(len(segment)) - np.repeat(np.cumsum(counts) - counts, counts)
    cell = (np.cumsum(groups) - groups)[segment] * width + rank
    # at least one group, of nothing, so that there is something to gather
    size = max(1, int(groups.sum())) * width
    full_index, full_factor = np.zeros(size, np.int32), np.zeros(size)
    full_index[cell], full_factor[cell] = index, factor
    owners = np.repeat(np.arange(segments), groups) if groups.any() else np.zeros(1, np.int64)
    return GroupedSum(
        tuple(map(jax.device_put, np.hsplit(full_index.reshape(-1, width), width))),
        tuple(map(jax.device_put, np.hsplit(full_factor.reshape(-1, width), width))),
        None if (groups == 1).all() else jax.device_put(owners),
        segments,
    )


def _group_width(counts: Index) -> int:
    """The width with the least work: a slot costs one gather, joining a group about four."""
    longest = max(1, int(counts.max(initial=1)))
    widths = [width for width in (1, 2, 4, 8, 16, 32) if width < longest]
    if longest <= 32:
        widths.append(longest)

    def work(width: int) -> int:
        groups = -(-counts // width)
        return int(groups.sum()) * (width if (groups == 1).all() else width + 4)

    return min(widths, key=work)


@partial(
    jax.tree_util.register_dataclass,
    data_fields=["forward", "backward", "start", "column", "value"],
    meta_fields=["clients", "dim", "longest"],
)
@dataclass(frozen=True)
class SparseRows:
    """Nonzeros only: work and memory grow with their number, not with rows times features."""

    forward: GroupedSum
    backward: GroupedSum
    start: Array  # [rows + 1], then the nonzeros of the rows one after the other
    column: Array
    value: Array
    clients: int
    dim: int
    longest: int  # nonzeros in the fullest row

    def dot(self, W: Array) -> Array:
        return self.forward(W.reshape(self.clients * self.dim, -1))

    def dot_t(self, R: Array) -> Array:
        return self.backward(R).reshape(self.clients, self.dim, -1)

    def batch_dot(self, rows: Array, x: Array) -> Array:
        column, value = self._chosen(rows)
        return _gather_dot(column, value, x)

    def batch_dot_t(self, rows: Array, R: Array) -> Array:
        column, value = self._chosen(rows)
        return _scatter_dot(column, value, R, self.dim)

    def _chosen(self, rows: Array) -> tuple[Array, Array]:
        """Columns and values of the chosen rows, filled up with zeros to the longest."""
        entry = self.start[rows][..., None] + jnp.arange(self.longest)
        inside = entry < self.start[rows + 1][..., None]
        value = jnp.where(inside, self.value.at[entry].get(mode="clip"), 0.0)
        return self.column.at[entry].get(mode="clip"), value


@partial(jax.vmap, in_axes=(0, 0, 0))  # runs
@partial(jax.vmap, in_axes=(0, 0, 0))  # clients
def _gather_dot(column: Array, value: Array, x: Array) -> Array:
    return jnp.einsum("bk,bk...->b...", value, x[column])


def _scatter_dot(column: Array, value: Array, R: Array, dim: int) -> Array:
    def one_client(column: Array, value: Array, R: Array) -> Array:
        terms = jnp.einsum("bk,b...->bk...", value, R)
        return jnp.zeros((dim, *R.shape[1:])).at[column].add(terms)

    return jax.vmap(jax.vmap(one_client))(column, value, R)


class Layout(NamedTuple):
    """Rows on the device, and where the examples stand among them."""

    rows: DenseRows | SparseRows
    place: Index  # [examples], the row of each example
    owner: Index  # [rows], the client of each row, in increasing order


def layout(examples: Examples) -> Layout:
    """Choose the layout by the share of nonzeros."""
    features = examples.features
    if sparse.issparse(features) and features.nnz <= SPARSE_BELOW * np.prod(features.shape):
        return _sparse(examples)
    return _dense(examples)


def _sparse(examples: Examples) -> Layout:
    csr = sparse.csr_array(examples.features)
    rows, dim = csr.shape
    clients = len(examples.counts)
    owner = np.repeat(np.arange(clients), examples.counts)
    row = np.repeat(np.arange(rows), np.diff(csr.indptr))
    entry = owner[row] * dim + csr.indices
    by_entry = np.argsort(entry, kind="stable")
    sparse_rows = SparseRows(
        grouped_sum(entry, csr.data, row, rows),
        grouped_sum(row[by_entry], csr.data[by_entry], entry[by_entry], clients * dim),
        jax.device_put(csr.indptr),
        jax.device_put(np.pad(csr.indices, (0, 1))),  # one more entry: gathers need at least one
        jax.device_put(np.pad(csr.data, (0, 1))),
        clients,
        dim,
        int(np.diff(csr.indptr).max(initial=1)),
    )
    return Layout(sparse_rows, np.arange(rows), owner)


def _dense(examples: Examples) -> Layout:
    features = examples.features
    if sparse.issparse(features):
        features = features.toarray()
    counts = examples.counts
    height = _block_height(counts)
    blocks = -(-counts // height)
    shift = (np.cumsum(blocks) - blocks) * height - examples.offsets[:-1]
    place = np.repeat(shift, counts) + np.arange(len(features))
    filled = np.zeros((blocks.sum() * height, features.shape[1]))
    filled[place] = features
    owner = np.repeat(np.arange(len(counts)), blocks)
    dense_rows = DenseRows(
        jax.device_put(filled.reshape(-1, height, features.shape[1])),
        jax.device_put(owner),
        len(counts),
    )
    return Layout(dense_rows, place, np.repeat(owner, height))


def _block_height(counts: Index) -> int:
    """The tallest block for which filling up last blocks costs at most a quarter."""
    height = max(1, int(counts.max(initial=1)))
    while height > 1 and (-(-counts // height) * height).sum() > 1.25 * counts.sum():
        height = -(-height // 2)
    return height
