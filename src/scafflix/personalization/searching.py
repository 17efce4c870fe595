"""x_i* of a PyTorch module: the search of `personalization.optima`, client by client."""

from __future__ import annotations

import jax
import numpy as np
from numpy.typing import NDArray

from scafflix.core.streams import Stream
from scafflix.core.tensors import Tensors, in_numpy, in_tensors
from scafflix.models.network import Params
from scafflix.personalization.descent import Best, along
from scafflix.personalization.finding import VALIDATION_ROWS, Found
from scafflix.personalization.recipe import Recipe
from scafflix.problems.modules import Module
from scafflix.problems.pytorch import TorchFunctions


def find(
    functions: TorchFunctions,
    points: Params,
    recipe: Recipe,
    rate: float,
    clients: NDArray[np.int64],
    made: int,
) -> Found:
    """The best points of some clients from theirs after so many looks, in NumPy."""

    def at_client(module: Module, place: int) -> Best:
        client = int(clients[place])
        own = jax.tree.map(lambda leaf: leaf[place], points)

        def slope(x: Tensors, step: int) -> Tensors:
            seed = (recipe.seed, int(Stream.OPTIMA), client, step)
            return functions.slopes(module, client, x, recipe.batch, seed)[0]

        def look(x: Tensors) -> float:
            return functions.mean_loss(module, client, x.tree, "validation", VALIDATION_ROWS)

        return along(rate, in_tensors(own, functions.device), recipe, slope, look, made)

    found = functions.each(at_client, range(len(clients)))
    best = [in_numpy(one.x.tree) for one in found]
    return Found(
        jax.tree.map(lambda *leaves: np.stack(leaves), *best),
        np.array([one.loss for one in found]),
        np.array([one.steps for one in found]),
    )
