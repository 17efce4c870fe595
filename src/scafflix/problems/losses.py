"""The functions f_1, ..., f_n of a linear model on the device, all in one pass."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from scafflix.core.precision import in_float64
from scafflix.core.types import Floats
from scafflix.data.federation import Examples
from scafflix.models import LinearModel
from scafflix.problems.constants import row_norms_sq
from scafflix.problems.features import DenseRows, SparseRows, layout


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

    def mean_losses(self, x: Array) -> Array:
        """f_i without its regularization: the mean loss over each client's examples, NaN where it
        has none."""
        loss = self.model.loss(self._predict(x), self.targets[:, None])
        return jnp.where(self.counts > 0, self._sum_over_rows(loss * self.weight[:, None]), jnp.nan)

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


@in_float64
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
        norm_sq=placed(row_norms_sq(examples.features)),
        first=jax.device_put(np.searchsorted(owner, np.arange(len(counts)))),
        counts=jax.device_put(counts),
        l2=jax.device_put(np.float64(l2)),
        model=model,
        dim=int(examples.features.shape[1]),
        outputs=outputs,
    )
