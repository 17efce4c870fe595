"""What clients send up: checked against what they were asked for, then averaged."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from scafflix.core.durable import Arrays
from scafflix.federate.messages import Fault, Upload, fault_of

WEIGHT_TOLERANCE = 1e-9  # relative, between a weight and what alpha_i and gamma_i imply


class Expected(NamedTuple):
    """What an upload of one client must say."""

    client: str
    run: str
    epoch: int
    round: int  # the open one; an upload for an earlier one is late, not wrong
    asked: bool  # whether the client is in the cohort of the open round
    layout: str
    weight: float  # implied by alpha_i and gamma_i
    committed: int | None  # the last round that held an upload of it; None: nothing to commit


def problem_with_upload(upload: Upload, expected: Expected) -> Fault | None:
    """Why it cannot be in the average, None if it can."""
    if upload.client != expected.client:
        return Fault("unknown_client", f"it calls itself {upload.client!r}.")
    wrong = fault_of(upload, expected.layout)
    if wrong is not None:
        return wrong
    if upload.run != expected.run:
        return Fault("run", f"it is of the run {upload.run!r}.")
    if upload.epoch != expected.epoch:
        return Fault("epoch", f"it is of epoch {upload.epoch}; this is {expected.epoch}.")
    open_now = upload.round == expected.round
    if upload.round > expected.round or (open_now and not expected.asked):
        return Fault("round", f"it is for round {upload.round}; this is {expected.round}.")
    if not math.isclose(upload.weight, expected.weight, rel_tol=WEIGHT_TOLERANCE):
        return Fault(
            "weight",
            f"its weight is {upload.weight:g}; alpha and gamma imply {expected.weight:g}.",
        )
    if open_now and expected.committed not in (None, upload.committed):
        return Fault(
            "committed",
            f"it committed round {upload.committed}; it was last in that of {expected.committed}.",
        )
    return None


def weighted_mean(uploads: Sequence[Upload]) -> Arrays:
    """Line 11's average of messages, array by array, summed in double precision."""
    weights = np.array([upload.weight for upload in uploads])
    share = weights / weights.sum()
    leaves = []
    for stack in zip(*(upload.point for upload in uploads), strict=True):
        total = np.zeros(stack[0].shape)
        for part, leaf in zip(share, stack, strict=True):
            total += part * leaf
        leaves.append(total.astype(stack[0].dtype))
    return tuple(leaves)
