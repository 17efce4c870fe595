"""Names of types that many modules use."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

if TYPE_CHECKING:  # shapes, for readers and type checkers
    from jax import Array
    from jaxtyping import Bool, Float, Int

    # of linear models, whose parameters have a shape [dim, *outputs]
    PerRun = Float[Array, "runs"]
    Models = Float[Array, "runs *shape"]
    PerClient = Float[Array, "runs clients"]
    Points = Float[Array, "runs clients *shape"]
    Stars = Float[Array, "clients *shape"]
    PerRow = Float[Array, "rows"]
    Owners = Int[Array, "rows"]
    Counts = Int[Array, "clients"]
    Predictions = Float[Array, "rows runs *outputs"]
    Batches = Int[Array, "runs clients batch"]
    # of many problems that are solved together
    Rows = Float[Array, "problems size"]
    PerProblem = Float[Array, "problems"]
    Which = Bool[Array, "problems"]
