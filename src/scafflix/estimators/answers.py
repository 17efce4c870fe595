"""Rows to the models that answer them: each to the model of its site, or to the global one."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from scafflix.core.precision import in_float64
from scafflix.core.types import Floats
from scafflix.data.federation import Features
from scafflix.data.scaling import to_dense
from scafflix.models import is_network
from scafflix.prediction import BATCH, Predictor
from scafflix.record import Record

STRANGER = -1  # in the place of a site that was not in training


@in_float64
def answers(record: Record, features: Features, places: NDArray[np.int64]) -> Floats:
    """z of every row, `[rows, *outputs]`, by the model of the site in its place."""
    order = np.argsort(places, kind="stable")
    which, first = np.unique(places[order], return_index=True)
    blocks = [
        _outputs(predictor_of(record, place), features[rows])
        for place, rows in zip(which.tolist(), np.split(order, first[1:]), strict=True)
    ]
    found = np.empty((len(places), *blocks[0].shape[1:]))
    found[order] = np.concatenate(blocks)
    return found


def predictor_of(record: Record, place: int) -> Predictor:
    """What the site in this place took home, or the global model."""
    if place == STRANGER:
        return record.predictor(None, "global")
    return record.predictor(str(record.clients["client"][place]))


def _outputs(predictor: Predictor, features: Features) -> Floats:
    """z of rows that one model answers; some at once, so that sparse ones need little room."""
    network = is_network(predictor.model)
    if network:  # in float32 an answer would depend on how many rows come with it
        exact = {name: array.astype(np.float64) for name, array in predictor.weights.items()}
        predictor = replace(predictor, weights=exact)
    parts = []
    for start in range(0, features.shape[0], BATCH):
        rows = to_dense(features[start : start + BATCH])
        made = predictor.preprocessing
        inputs = rows if made is None else made.scale(rows)
        if network:  # few sizes, of which each is compiled once
            size = min(BATCH, 1 << (len(rows) - 1).bit_length())
            inputs = np.pad(inputs, ((0, size - len(rows)), (0, 0)))
        parts.append(predictor.outputs(inputs)[: len(rows)])
    return np.concatenate(parts)
