"""How good models of a PyTorch module are for each client."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray

from scafflix.core.tensors import as_points, in_tensors
from scafflix.models.network import Params
from scafflix.problems.modules import AT_ONCE, Module
from scafflix.problems.pytorch import TorchFunctions


def put_tallies(
    columns: Sequence[NDArray[Any]],
    functions: TorchFunctions,
    part: str,
    clients: NDArray[np.int64],
    x: Params,
    takes: tuple[Any, Any] | None = None,
) -> NDArray[np.float64]:
    """Put loss, score and entries of every example of some clients in its row, of x or of what
    each takes home: a function of it, and the clients themselves; and forecasts in bins.

    x goes through the module with the examples of several clients together, unless batch norms
    count means and variances that are each client's own.
    """
    device, rows = functions.device, functions.parts[part]
    shared = in_tensors(x, device)

    def model(place: int) -> Any:
        if takes is None:
            return shared.tree
        personal, taken = takes
        *those, own = jax.tree.map(lambda leaf: leaf[place], taken)
        client, state = as_points(tuple(those), device)
        return personal(client, state, shared if own is None else in_tensors(own, device)).tree

    def put(module: Module, places: NDArray[np.int64]) -> NDArray[np.float64]:
        some, tree = clients[places], model(int(places[0]))
        if functions.counts_statistics:
            module.observe(tree, *functions.parts["train"].of(int(some[0])))
        last = int(rows.first[some[-1]] + rows.counts[some[-1]])
        span = slice(int(rows.first[some[0]]), last)
        labels = rows.labels[span]
        outputs = module.evaluated(tree, rows.inputs[span], labels)
        made, bins = module.examined(outputs, labels)
        for column, values in zip(columns, made, strict=True):
            column[span] = values
        return bins

    together = takes is None and not functions.counts_statistics
    alone = np.arange(len(clients))[:, None]
    made = functions.each(put, _groups(rows.counts[clients]) if together else alone)
    return np.sum(made, axis=0)


def _groups(counts: NDArray[np.int64]) -> list[NDArray[np.int64]]:
    """Neighbours whose examples are evaluated together."""
    cuts = np.flatnonzero(np.diff(np.cumsum(counts) // AT_ONCE)) + 1
    return np.split(np.arange(len(counts)), cuts)
