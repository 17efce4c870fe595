"""The examples of all clients on the devices, and f_i as a function of some of them.

f_i(x) = (1/n_i) sum_j loss(model(x, a_ij), b_ij) + (l2/2) ||x||^2
"""

from __future__ import annotations

from functools import cached_property
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.sharding import Mesh
from numpy.typing import NDArray
from scipy import sparse

from scafflix.core.precision import precision
from scafflix.core.sharing import replicate
from scafflix.data.federation import Examples
from scafflix.models.linear import SparseInputs
from scafflix.models.network import Inputs, Network, Params, mean_loss

Numbers = Array | NDArray[Any]


class Rows(NamedTuple):
    """The examples of all clients on the device, as small as the data holds them."""

    inputs: Inputs  # [rows, ...], or a tree of such
    labels: Array  # [rows] or [rows, length]; negative or NaN where there is nothing to predict


class Spans(NamedTuple):
    """Which rows belong to some clients."""

    first: Numbers  # [clients]
    length: Numbers  # [clients]


class Part:
    """The training, validation or test examples of a federation, with labels as numbers."""

    def __init__(
        self, examples: Examples, labels: NDArray[Any], dtype: np.dtype[Any], mesh: Mesh
    ) -> None:
        self.labels = labels
        self.counts = examples.counts
        self.first = examples.offsets[:-1]
        self.owners = examples.owners
        self._features, self._dtype, self._mesh = examples.features, dtype, mesh

    @cached_property
    def rows(self) -> Rows:
        """The examples where JAX computes."""
        inputs = _inputs(self._features, self._dtype)
        with precision(self._dtype == np.float64):
            return Rows(*replicate(self._mesh, (inputs, self.labels), copy=False))

    def spans(self, clients: NDArray[np.int64]) -> Spans:
        """The rows of the chosen clients."""
        return Spans(self.first[clients].astype(np.int32), self.counts[clients].astype(np.int32))


def _inputs(features: Any, dtype: np.dtype[Any]) -> Any:
    """Real numbers in the model's type, pixels and codes as they are; of sparse rows, as many
    entries each as the longest has."""
    if isinstance(features, np.ndarray):
        return features.astype(dtype, copy=False) if features.dtype.kind == "f" else features
    rows = sparse.csr_array(features)
    count = np.diff(rows.indptr)
    width = max(1, int(count.max(initial=0)))
    owner = np.repeat(np.arange(len(count)), count)
    place = np.arange(rows.nnz) - np.repeat(rows.indptr[:-1], count)
    index, value = np.zeros((len(count), width), np.int32), np.zeros((len(count), width), dtype)
    index[owner, place], value[owner, place] = rows.indices, rows.data
    return SparseInputs(index, value)


def objective(
    network: Network, l2: float, params: Params, inputs: Inputs, labels: Array
) -> tuple[Array, Array]:
    """f_i on a batch, and the loss alone; l2 is known when this is compiled."""
    loss = mean_loss(network, params, inputs, labels)
    if not l2:
        return loss, loss
    square = sum(jnp.vdot(leaf, leaf) for leaf in jax.tree.leaves(params))
    return loss + 0.5 * l2 * square, loss


def batch_rows(rows: Rows, first: Numbers, length: Numbers, batch: int, key: Array) -> Rows:
    """Examples of one client drawn with replacement."""
    chosen = first + jax.random.randint(key, (batch,), 0, length, dtype=jnp.int32)
    return jax.tree.map(lambda column: column[chosen], rows)


def first_rows(rows: Rows, first: Numbers, length: Numbers, batch: int) -> Rows:
    """A client's first examples, up to as many; labels beyond its last are not counted."""
    place = jnp.arange(batch, dtype=jnp.int32)
    chosen = first + jnp.minimum(place, length - 1)
    inputs, labels = jax.tree.map(lambda column: column[chosen], rows)
    real = (place < length).reshape(-1, *(1,) * (labels.ndim - 1))
    if jnp.issubdtype(labels.dtype, jnp.integer):
        return Rows(inputs, jnp.where(real, labels.astype(jnp.int32), -1))
    return Rows(inputs, jnp.where(real, labels, jnp.nan))


def label_codes(labels: list[NDArray[Any]]) -> list[NDArray[Any]]:
    """Labels as whole numbers: as they are, or numbered in sorted order.

    Only sequences have places with nothing to predict; one label of -1 is a class.
    """
    whole = all(np.issubdtype(part.dtype, np.integer) for part in labels)
    if whole and (labels[0].ndim > 1 or all((part >= 0).all() for part in labels)):
        return labels
    _, codes = np.unique(np.concatenate(labels), return_inverse=True)
    return np.split(codes.astype(np.int32), np.cumsum([len(part) for part in labels])[:-1])
