"""x_i* of a PyTorch module: the search of `personalization.optima`, client by client."""

from __future__ import annotations

import jax
import numpy as np
from numpy.typing import NDArray

from scafflix.core.streams import Stream
from scafflix.core.tensors import Tensors, in_numpy, in_tensors
from scafflix.models.network import Params
from scafflix.personalization.descent import Best, along
from scafflix.personalization.optima import VALIDATION_ROWS, Found, Recipe
from scafflix.problems.modules import Module
from scafflix.problems.pytorch import TorchFunctions


def find(
    functions: TorchFunctions,
    start: Params,
    recipe: Recipe,
    rate: float,
    clients: NDArray[np.int64],
) -> Found:
    """The best points of some clients, in NumPy."""
    first = in_tensors(start, functions.device)

    def at_client(module: Module, client: int) -> Best:
        def slope(x: Tensors, step: int) -> Tensors:
            seed = (recipe.seed, int(Stream.OPTIMA), client, step)
            return functions.slopes(module, client, x, recipe.batch, seed)[0]

        def look(x: Tensors) -> float:
            return functions.mean_loss(module, client, x.tree, "validation", VALIDATION_ROWS)

        return along(rate, first, recipe, slope, look)

    found = functions.each(at_client, clients.tolist())
    points = [in_numpy(best.x.tree) for best in found]
    return Found(
        jax.tree.map(lambda *leaves: np.stack(leaves), *points),
        np.array([best.loss for best in found]),
        np.array([best.steps for best in found]),
    )
