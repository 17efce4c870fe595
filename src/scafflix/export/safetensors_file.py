"""Weights by name as safetensors; what makes answers of them is JSON in the metadata."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import numpy as np
from safetensors.numpy import save

from scafflix.export.content import facts, named_weights

if TYPE_CHECKING:
    from scafflix.prediction import Predictor


def safetensors_content(predictor: Predictor) -> bytes:
    """The bytes of the file. Texts of the metadata are JSON: `model`, `classes`, `label_kind` and
    `preprocessing`."""
    arrays = {name: np.ascontiguousarray(a) for name, a in named_weights(predictor).items()}
    words = {name: json.dumps(fact, allow_nan=False) for name, fact in facts(predictor).items()}
    return save(arrays, words)
