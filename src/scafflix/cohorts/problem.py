"""A network on a federation: f_i is the mean loss over a client's training examples.

f_i(x) = (1/n_i) sum_j loss(network(x, a_ij), b_ij) + (l2/2) ||x||^2
"""

from __future__ import annotations

import re
from functools import cached_property, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.sharding import Mesh
from numpy.typing import NDArray

from scafflix.cohorts.devices import all_devices, replicate
from scafflix.data.federation import Examples, Federation
from scafflix.digest import digest_of
from scafflix.engine import streams
from scafflix.engine.streams import Stream
from scafflix.errors import ScafflixError
from scafflix.models.network import Network, Params, mean_loss, parameter_count, tallies

Numbers = Array | NDArray[Any]


class Rows(NamedTuple):
    """The examples of all clients on the device, as small as the data holds them."""

    inputs: Array  # [rows, ...]
    labels: Array  # [rows] or [rows, length]; negative where there is nothing to predict


class Spans(NamedTuple):
    """Which rows belong to some clients."""

    first: Numbers  # [clients]
    length: Numbers  # [clients]


class Part:
    """The training, validation or test examples of a federation."""

    def __init__(self, name: str, examples: Examples, labels: NDArray[Any], mesh: Mesh) -> None:
        features = examples.features
        if not isinstance(features, np.ndarray):
            raise ScafflixError("A network takes dense features; these are sparse.")
        if features.dtype == np.float64:
            features = features.astype(np.float32)
        self.name = name
        self.examples = examples
        self.labels = labels
        self.counts = examples.counts
        self.first = examples.offsets[:-1]
        self.owners = examples.owners
        self.rows = Rows(*replicate(mesh, (features, labels), copy=False))

    def spans(self, clients: NDArray[np.int64]) -> Spans:
        """The rows of the chosen clients."""
        return Spans(self.first[clients].astype(np.int32), self.counts[clients].astype(np.int32))


class NetworkProblem:
    """A network on a federation.

    >>> import scafflix as sx
    >>> fed = sx.data.synthetic(clients=4, seed=0)
    >>> network = sx.models.dense(features=20, classes=2, hidden=())
    >>> problem = sx.NetworkProblem(fed, network)
    >>> problem.n, problem.size
    (4, 42)
    """

    def __init__(self, federation: Federation, network: Network, l2: float = 0.0) -> None:
        if not (np.isfinite(l2) and l2 >= 0):
            raise ScafflixError(f"l2 is {l2}; it must be a finite number, 0 or more.")
        self.federation = federation
        self.network = network
        self.l2 = float(l2)
        self.mesh = all_devices()
        parts = federation.parts
        codes = _codes([part.labels for part in parts.values()])
        self.parts = {
            name: Part(name, part, labels, self.mesh)
            for (name, part), labels in zip(parts.items(), codes, strict=True)
        }
        self._check_network()

    def _check_network(self) -> None:
        """One example through the network, without computing anything."""
        rows = self.parts["train"].rows
        example = jax.tree.map(lambda a: jax.ShapeDtypeStruct((1, *a.shape[1:]), a.dtype), rows)
        try:
            logits = jax.eval_shape(self.network.apply, self.template, example.inputs)
        except (TypeError, ValueError) as error:
            raise ScafflixError(
                f"The network {self.network.name} does not take examples of shape "
                f"{rows.inputs.shape[1:]} and type {rows.inputs.dtype}: {_first_line(error)}"
            ) from None
        if logits.shape[:-1] != example.labels.shape:
            raise ScafflixError(
                f"The network {self.network.name} makes outputs of shape {logits.shape[1:]} for "
                f"labels of shape {example.labels.shape[1:]}; it must add one axis of classes."
            )
        self.classes = int(logits.shape[-1])
        largest = max(int(part.rows.labels.max()) for part in self.parts.values())
        if largest >= self.classes:
            raise ScafflixError(
                f"The network {self.network.name} has {self.classes} classes, but a label is "
                f"{largest}; labels must be below the number of classes."
            )

    @property
    def n(self) -> int:
        """The number of clients."""
        return len(self.federation.clients)

    @property
    def train(self) -> Part:
        return self.parts["train"]

    @cached_property
    def template(self) -> Params:
        """Shapes and types of the parameters."""
        return jax.eval_shape(self.network.init, jax.random.key(0))

    @cached_property
    def digest(self) -> str:
        """A name for all this: the data, and start, loss and score operation by operation."""
        batch = (self.template, self.train.rows.inputs[:1], self.train.rows.labels[:1])
        traced = (
            jax.make_jaxpr(self.network.init)(jax.random.key(0)),
            jax.make_jaxpr(partial(objective, self.network, self.l2))(*batch),
            jax.make_jaxpr(partial(tallies, self.network))(*batch),
        )
        addresses = re.compile(r"0x[0-9a-f]+")  # of functions, other in every process
        texts = [addresses.sub("", str(one)) for one in traced]
        constants = [np.asarray(value) for one in traced for value in one.consts]
        arrays = [
            array
            for part in self.parts.values()
            for array in (part.name, part.examples.features, part.labels, part.examples.offsets)
        ]
        return digest_of(self.network.metric, texts, *constants, *arrays)

    @property
    def size(self) -> int:
        """The number of parameters of one model."""
        return parameter_count(self.template)

    def start(self, seed: int) -> Params:
        """The common random start of a seed."""
        return jax.jit(self.network.init)(streams.key(seed, Stream.MODEL))


def objective(
    network: Network, l2: float, params: Params, inputs: Array, labels: Array
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
    return Rows(rows.inputs[chosen], rows.labels[chosen])


def first_rows(rows: Rows, first: Numbers, length: Numbers, batch: int) -> Rows:
    """A client's first examples, up to as many; labels beyond its last are not counted."""
    place = jnp.arange(batch, dtype=jnp.int32)
    chosen = first + jnp.minimum(place, length - 1)
    labels = rows.labels[chosen].astype(jnp.int32)
    real = (place < length).reshape(-1, *(1,) * (labels.ndim - 1))
    return Rows(rows.inputs[chosen], jnp.where(real, labels, -1))


def _codes(labels: list[NDArray[Any]]) -> list[NDArray[Any]]:
    """Labels as whole numbers: as they are, or numbered in sorted order.

    Only sequences have places with nothing to predict; one label of -1 is a class.
    """
    whole = all(np.issubdtype(part.dtype, np.integer) for part in labels)
    if whole and (labels[0].ndim > 1 or all((part >= 0).all() for part in labels)):
        return labels
    _, codes = np.unique(np.concatenate(labels), return_inverse=True)
    return np.split(codes.astype(np.int32), np.cumsum([len(part) for part in labels])[:-1])


def _first_line(error: Exception) -> str:
    return str(error).strip().splitlines()[0][:200]
