"""The functions f_1, ..., f_n of a linear model on the device, all in one pass."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from scafflix.core.precision import in_float64
from scafflix.core.types import Floats
from scafflix.data.federation import Examples
from scafflix.models import LinearModel
from scafflix.models.calibration import binned
from scafflix.problems.constants import row_norms_sq
from scafflix.problems.features import DenseRows, SparseRows, layout

if TYPE_CHECKING:
    from scafflix.core.types import (
        Batches,
        Counts,
        Owners,
        PerClient,
        PerRow,
        Points,
        Predictions,
    )


@partial(
    jax.tree_util.register_dataclass,
    data_fields=["rows", "targets", "weight", "owner", "norm_sq", "first", "counts", "l2"],
    meta_fields=["model", "dim", "outputs"],
)
@dataclass(frozen=True)
class Losses:
    """The functions f_1, ..., f_n on the device.

    Every function takes the parameters of all clients at once, for any number of runs.
    """

    rows: DenseRows | SparseRows
    targets: PerRow
    weight: PerRow  # 1/n_i, 0 where a row only fills a block
    owner: Owners  # the client of each row
    norm_sq: PerRow  # ||a_ij||^2
    first: Counts  # the place of a client's first row
    counts: Counts  # n_i
    l2: Array
    model: LinearModel
    dim: int
    outputs: tuple[int, ...]

    def values_and_gradients(self, x: Points) -> tuple[PerClient, Points]:
        """f_i(x_i) and grad f_i(x_i), in one pass."""
        z = self._predict(x)
        means = self._sum_over_rows(
            self.model.loss(z, self.targets[:, None]) * self.weight[:, None]
        )
        values = means + 0.5 * self.l2 * _norms_sq(x)
        return values, self._back(self.model.slope(z, self.targets[:, None])) + self.l2 * x

    def scores(self, x: Points) -> PerClient:
        """The model's metric over each client's examples, NaN where it has none."""
        score = self.model.score(self._predict(x), self.targets[:, None])
        return jnp.where(
            self.counts > 0, self._sum_over_rows(score * self.weight[:, None]), jnp.nan
        )

    def mean_losses(self, x: Points) -> PerClient:
        """f_i without its regularization: the mean loss over each client's examples, NaN where it
        has none."""
        loss = self.model.loss(self._predict(x), self.targets[:, None])
        return jnp.where(self.counts > 0, self._sum_over_rows(loss * self.weight[:, None]), jnp.nan)

    def examined(self, x: Points) -> tuple[Array, Array, Array]:
        """Loss and score of every row, `[runs, rows]`, and the forecasts of all clients in bins,
        `[runs, 3, BINS]`."""
        z, y = self._predict(x), self.targets
        loss, score = (f(z, y[:, None]).T for f in (self.model.loss, self.model.score))
        labels = jnp.where(self.weight > 0, y, jnp.nan)
        return loss, score, jax.vmap(lambda z: binned(self.model, z, labels), 1)(z)

    def gradients(self, x: Points) -> Points:
        """grad f_i(x_i)."""
        slope = self.model.slope(self._predict(x), self.targets[:, None])
        return self._back(slope) + self.l2 * x

    def hessian_products(self, x: Points, v: Points) -> Points:
        """The Hessian of f_i at x_i times v_i."""
        _, bend = jax.jvp(
            lambda z: self.model.slope(z, self.targets[:, None]),
            (self._predict(x),),
            (self._predict(v),),
        )
        return self._back(bend) + self.l2 * v

    def batch_gradients(self, x: Points, rows: Batches) -> Points:
        """The mean gradient over the chosen rows."""
        slope = self.model.slope(self.rows.batch_dot(rows, x), self.targets[rows])
        return self.rows.batch_dot_t(rows, slope) / rows.shape[-1] + self.l2 * x

    def clipped_gradients(self, x: Points, clip: Array, chosen: Array | None = None) -> Points:
        """(1/n_i) sum_j grad f_ij(x_i), each of at most the norm `clip` (of a run), over all
        examples or, with `chosen` [rows, runs], some of them; and the l2 term as it is."""
        slope = self.model.slope(self._predict(x), self.targets[:, None])
        factor = jnp.minimum(1.0, clip / jnp.sqrt(self._sizes_sq(slope)))
        factor = jnp.where(jnp.isnan(factor), 1.0, factor)  # infinity by infinity: all may pass
        factor = factor if chosen is None else factor * chosen
        return self._back(slope * factor.reshape(*factor.shape, *(1,) * (slope.ndim - 2))) + (
            self.l2 * x
        )

    def mean_sizes_sq(self, x: Points) -> PerClient:
        """(1/n_i) sum_j ||grad f_ij(x_i)||^2, without the l2 term."""
        slope = self.model.slope(self._predict(x), self.targets[:, None])
        return self._sum_over_rows(self._sizes_sq(slope) * self.weight[:, None])

    def _sizes_sq(self, slope: Predictions) -> Array:
        """||a_ij slope_ij^T||^2, `[rows, runs]`."""
        size = jnp.sum(slope.reshape(*slope.shape[:2], -1) ** 2, axis=-1)
        return size * self.norm_sq[:, None]

    def gradient_variances(self, x: Points) -> PerClient:
        """(1/n_i) sum_j ||grad f_ij(x_i) - grad f_i(x_i)||^2."""
        slope = self.model.slope(self._predict(x), self.targets[:, None])
        mean_sq = self._sum_over_rows(self._sizes_sq(slope) * self.weight[:, None])
        return mean_sq - _norms_sq(self._back(slope))  # the l2 term is common and cancels

    def _predict(self, x: Points) -> Predictions:
        """z for every row and run."""
        W = jnp.moveaxis(x, 0, 2).reshape(len(self.counts), self.dim, -1)
        return self.rows.dot(W).reshape(-1, x.shape[0], *self.outputs)

    def _back(self, slope: Predictions) -> Points:
        """sum_j (1/n_i) a_ij slope_ij^T: the way back."""
        weighted = slope * self.weight.reshape(-1, *(1,) * (slope.ndim - 1))
        G = self.rows.dot_t(weighted.reshape(len(slope), -1))
        return jnp.moveaxis(G.reshape(*G.shape[:2], *slope.shape[1:]), 2, 0)

    def _sum_over_rows(self, per_row: Array) -> PerClient:
        return jax.ops.segment_sum(per_row, self.owner, len(self.counts), indices_are_sorted=True).T


def _norms_sq(x: Points) -> PerClient:
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
