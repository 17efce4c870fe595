"""A model on a federation: the value and the gradient of each f_i, and its constants.

f_i(x) = (1/n_i) sum_j loss(a_ij, b_ij; x) + (l2/2) ||x||^2
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, partial
from itertools import pairwise
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import NDArray
from scipy.sparse.linalg import svds

from scafflix.data.federation import Examples, Features, Federation
from scafflix.errors import ScafflixError
from scafflix.features import DenseRows, SparseRows, layout
from scafflix.models import LinearModel
from scafflix.models.linear import Targets

Floats = NDArray[np.float64]
LARGEST_GRAM = 3000  # above it lambda_max is found by Lanczos instead of a full decomposition
LARGEST_STATE = 8 * 2**30  # bytes of one parameter array per client


@partial(
    jax.tree_util.register_dataclass,
    data_fields=["rows", "targets", "weight", "owner", "norm_sq", "first", "counts", "l2"],
    meta_fields=["model", "dim", "outputs"],
)
@dataclass(frozen=True)
class Losses:
    """The functions f_1, ..., f_n on the device.

    Every function takes the parameters of all clients at once, for any number of runs:
    x is `[runs, clients, dim, *outputs]`.
    """

    rows: DenseRows | SparseRows
    targets: Array  # [rows]
    weight: Array  # [rows], 1/n_i, 0 where a row only fills a block
    owner: Array  # [rows], the client of each row
    norm_sq: Array  # [rows], ||a_ij||^2
    first: Array  # [clients], the place of a client's first row
    counts: Array  # [clients], n_i
    l2: Array
    model: LinearModel
    dim: int
    outputs: tuple[int, ...]

    def values_and_gradients(self, x: Array) -> tuple[Array, Array]:
        """f_i(x_i) `[runs, clients]` and grad f_i(x_i) in the shape of x, in one pass."""
        z = self._predict(x)
        means = self._sum_over_rows(
            self.model.loss(z, self.targets[:, None]) * self.weight[:, None]
        )
        values = means + 0.5 * self.l2 * _norms_sq(x)
        return values, self._back(self.model.slope(z, self.targets[:, None])) + self.l2 * x

    def scores(self, x: Array) -> Array:
        """The model's metric over each client's examples, NaN where it has none."""
        score = self.model.score(self._predict(x), self.targets[:, None])
        return jnp.where(
            self.counts > 0, self._sum_over_rows(score * self.weight[:, None]), jnp.nan
        )

    def gradients(self, x: Array) -> Array:
        """grad f_i(x_i), in the shape of x."""
        slope = self.model.slope(self._predict(x), self.targets[:, None])
        return self._back(slope) + self.l2 * x

    def hessian_products(self, x: Array, v: Array) -> Array:
        """The Hessian of f_i at x_i times v_i, in the shape of x."""
        _, bend = jax.jvp(
            lambda z: self.model.slope(z, self.targets[:, None]),
            (self._predict(x),),
            (self._predict(v),),
        )
        return self._back(bend) + self.l2 * v

    def batch_gradients(self, x: Array, rows: Array) -> Array:
        """The mean gradient over the chosen rows `[runs, clients, batch]`, in the shape of x."""
        slope = self.model.slope(self.rows.batch_dot(rows, x), self.targets[rows])
        return self.rows.batch_dot_t(rows, slope) / rows.shape[-1] + self.l2 * x

    def gradient_variances(self, x: Array) -> Array:
        """(1/n_i) sum_j ||grad f_ij(x_i) - grad f_i(x_i)||^2: `[runs, clients]`."""
        slope = self.model.slope(self._predict(x), self.targets[:, None])
        size = jnp.sum(slope.reshape(*slope.shape[:2], -1) ** 2, axis=-1)
        mean_sq = self._sum_over_rows(size * (self.norm_sq * self.weight)[:, None])
        return mean_sq - _norms_sq(self._back(slope))  # the l2 term is common and cancels

    def _predict(self, x: Array) -> Array:
        """z for every row and run: `[rows, runs, *outputs]`."""
        W = jnp.moveaxis(x, 0, 2).reshape(len(self.counts), self.dim, -1)
        return self.rows.dot(W).reshape(-1, x.shape[0], *self.outputs)

    def _back(self, slope: Array) -> Array:
        """sum_j (1/n_i) a_ij slope_ij^T: the way back from `[rows, runs, *outputs]`."""
        weighted = slope * self.weight.reshape(-1, *(1,) * (slope.ndim - 1))
        G = self.rows.dot_t(weighted.reshape(len(slope), -1))
        return jnp.moveaxis(G.reshape(*G.shape[:2], *slope.shape[1:]), 2, 0)

    def _sum_over_rows(self, per_row: Array) -> Array:
        return jax.ops.segment_sum(per_row, self.owner, len(self.counts), indices_are_sorted=True).T


def _norms_sq(x: Array) -> Array:
    return jnp.sum(x**2, axis=tuple(range(2, x.ndim)))


def _row_norms_sq(features: Features) -> Floats:
    if isinstance(features, np.ndarray):
        return np.einsum("ij,ij->i", features, features)
    return np.asarray(features.multiply(features).sum(axis=1), float).ravel()


def losses(
    examples: Examples, targets: Floats, model: LinearModel, outputs: tuple[int, ...], l2: float
) -> Losses:
    """Put the examples of all clients on the device."""
    rows, place, owner = layout(examples)
    counts = examples.counts

    def placed(per_example: Floats) -> Array:
        per_row = np.zeros(len(owner))
        per_row[place] = per_example
        return jax.device_put(per_row)

    return Losses(
        rows=rows,
        targets=placed(targets),
        weight=placed(np.repeat(1.0 / np.maximum(counts, 1), counts)),
        owner=jax.device_put(owner),
        norm_sq=placed(_row_norms_sq(examples.features)),
        first=jax.device_put(np.searchsorted(owner, np.arange(len(counts)))),
        counts=jax.device_put(counts),
        l2=jax.device_put(np.float64(l2)),
        model=model,
        dim=int(examples.features.shape[1]),
        outputs=outputs,
    )


class Constants(NamedTuple):
    """What Assumption 1 asks of each f_i: L_i-smooth and mu_i-strongly convex."""

    L: Floats
    mu: Floats
    L_example: Floats  # the largest smoothness of a single example's loss

    @property
    def kappa(self) -> Floats:
        """The condition numbers L_i / mu_i."""
        return self.L / self.mu


class Problem:
    """A model on a federation.

    >>> import scafflix as sx
    >>> problem = sx.Problem(sx.data.synthetic(clients=4, seed=0), sx.models.logistic(), l2=0.1)
    >>> problem.n, problem.shape
    (4, (20,))
    """

    def __init__(
        self,
        federation: Federation,
        model: LinearModel,
        l2: float,
        smoothness: str = "tight",
        targets: Targets | None = None,
    ) -> None:
        if not (np.isfinite(l2) and l2 >= 0):
            raise ScafflixError(f"l2 is {l2}; it must be a finite number, 0 or more.")
        if smoothness not in ("tight", "bound"):
            raise ScafflixError(f"smoothness is {smoothness!r}; it must be tight or bound.")
        self.federation = federation
        self.model = model
        self.l2 = float(l2)
        self.smoothness = smoothness
        parts = federation.parts
        for part in parts.values():
            if part.features.ndim != 2 or part.labels.ndim != 1:
                raise ScafflixError(
                    f"The model {model.name} takes rows of numbers with one label each; the "
                    f"examples of {federation.name} have the shape {part.features.shape[1:]}. "
                    "Use a network."
                )
        self.targets = targets or model.encode(
            np.concatenate([part.labels for part in parts.values()])
        )
        self.shape = (federation.dim, *self.targets.outputs)
        if 8 * self.n * self.size > LARGEST_STATE:
            raise ScafflixError(
                f"{self.n} clients with {self.size} parameters each need "
                f"{8 * self.n * self.size / 2**30:.0f} GiB for one copy of their models; "
                f"at most {LARGEST_STATE / 2**30:.0f} GiB are supported."
            )
        values, outputs = self.targets.values, self.targets.outputs
        cuts = np.cumsum([len(part.labels) for part in parts.values()])[:-1]
        made = {
            name: losses(part, mine, model, outputs, self.l2)
            for (name, part), mine in zip(parts.items(), np.split(values, cuts), strict=True)
            if len(part.labels)
        }
        self.losses = made.pop("train")
        self.held_out = made  # by the name of the part

    @property
    def n(self) -> int:
        """The number of clients."""
        return len(self.federation.clients)

    @property
    def template(self) -> jax.ShapeDtypeStruct:
        """The shape and the type of one model."""
        return jax.ShapeDtypeStruct(self.shape, np.float64)

    @property
    def size(self) -> int:
        """The number of parameters of one model."""
        return int(np.prod(self.shape))

    def take(self, clients: NDArray[np.int64]) -> Problem:
        """The same problem for some of the clients, given in increasing order."""
        if len(clients) == self.n:
            return self
        # targets keep their meaning even where the chosen clients lack a class
        owners = np.concatenate([part.owners for part in self.federation.parts.values()])
        rows = np.flatnonzero(np.isin(owners, clients))
        targets = self.targets._replace(values=self.targets.values[rows])
        chosen = self.federation.take(clients)
        return Problem(chosen, self.model, self.l2, self.smoothness, targets)

    @cached_property
    def constants(self) -> Constants:
        """L_i and mu_i, with the chosen smoothness.

        `tight`: L_i = c lambda_max(A_i^T A_i / n_i) + l2, with c the largest curvature of the
        loss in the linear predictor (1/4 for the logistic loss).
        `bound`: the paper's L_i = (c / n_i) sum_j ||a_ij||^2 + l2.
        """
        low, high = self.model.curvature
        data_low = self._eigenvalues[0] if low > 0 else np.zeros(self.n)
        data_high = self._eigenvalues[1] if self.smoothness == "tight" else self._norms_sq.mean
        constants = Constants(
            L=high * data_high + self.l2,
            mu=low * data_low + self.l2,
            L_example=high * self._norms_sq.max + self.l2,
        )
        for client, mu in zip(self.federation.clients, constants.mu, strict=True):
            if not mu > 0:
                raise ScafflixError(
                    f"f_i of client {client} is not strongly convex (mu_i = {mu:.3g}), so that "
                    "its optimum may not exist; give l2 > 0."
                )
        return constants

    @cached_property
    def _eigenvalues(self) -> tuple[Floats, Floats]:
        """The smallest and the largest eigenvalue of A_i^T A_i / n_i for each client."""
        train = self.federation.train
        pairs = [
            _extreme_eigenvalues(train.features[start:stop])
            for start, stop in pairwise(train.offsets)
        ]
        smallest, largest = np.array(pairs).T
        return smallest, largest

    @cached_property
    def _norms_sq(self) -> _RowNorms:
        train = self.federation.train
        norms = _row_norms_sq(train.features)
        parts = np.split(norms, train.offsets[1:-1])
        return _RowNorms(np.array([p.mean() for p in parts]), np.array([p.max() for p in parts]))


class _RowNorms(NamedTuple):
    mean: Floats
    max: Floats


def _extreme_eigenvalues(A: Features) -> tuple[float, float]:
    rows, dim = A.shape
    if min(rows, dim) > LARGEST_GRAM:
        # 0 is a valid lower bound; the margin covers the tolerance of the iteration, whose start
        # is fixed, so that the same data have the same constants to the last bit
        if not _row_norms_sq(A).any():
            return 0.0, 0.0
        largest = svds(A, k=1, tol=1e-6, return_singular_vectors=False, rng=0)
        return 0.0, float(np.asarray(largest)[0]) ** 2 / rows * (1 + 1e-5)
    gram = A @ A.T if rows < dim else A.T @ A
    spectrum = np.linalg.eigvalsh(gram if isinstance(gram, np.ndarray) else gram.toarray()) / rows
    low, high = float(spectrum[0]), float(spectrum[-1])
    # what may be rounding is not strong convexity
    return (0.0 if rows < dim else max(0.0, low - dim * np.finfo(float).eps * high)), high
