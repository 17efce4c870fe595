"""Clients' uploads, checked against what was asked for, then averaged."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from scafflix.core.durable import Arrays
from scafflix.federate.messages import Fault, Upload, fault_of
from scafflix.federate.secure.messages import Keys

WEIGHT_TOLERANCE = 1e-9  # relative to the weight that alpha_i and gamma_i imply


class Expected(NamedTuple):
    """What an upload of one client must contain."""

    client: str
    run: str
    epoch: int
    round: int  # the open one; an upload for an earlier one is late, not wrong
    asked: bool  # whether the client is in the cohort of the open round
    layout: str  # of what is sent
    weight: float  # implied by alpha_i and gamma_i
    committed: int | None  # the last round that included its upload; None: nothing to commit


def problem_with_upload(upload: Upload | Keys, expected: Expected) -> Fault | None:
    """Why an upload cannot be averaged; None if it can."""
    if upload.client != expected.client:
        return Fault("unknown_client", f"its upload is in the name of {upload.client!r}.")
    wrong = fault_of(upload, expected.layout)
    if wrong is not None:
        return wrong
    if upload.run != expected.run:
        return Fault("run", f"its upload is for run {upload.run!r}; this is run {expected.run!r}.")
    if upload.epoch != expected.epoch:
        return Fault(
            "epoch", f"its upload is for epoch {upload.epoch}; this is epoch {expected.epoch}."
        )
    open_now = upload.round == expected.round
    if upload.round > expected.round:
        reason = f"its upload is for round {upload.round}; this is round {expected.round}."
        return Fault("round", reason)
    if open_now and not expected.asked:
        return Fault("round", f"it was not asked to train in round {upload.round}.")
    if not math.isclose(upload.weight, expected.weight, rel_tol=WEIGHT_TOLERANCE):
        return Fault(
            "weight",
            f"its weight is {upload.weight:g}; its alpha and gamma imply {expected.weight:g}.",
        )
    if open_now and expected.committed not in (None, upload.committed):
        return Fault(
            "committed",
            f"it committed round {upload.committed}; its last averaged upload is from round "
            f"{expected.committed}.",
        )
    return None


def weighted_mean(uploads: Sequence[Upload]) -> Arrays:
    """The average of line 11, array by array, summed in double precision."""
    weights = np.array([upload.weight for upload in uploads])
    share = weights / weights.sum()
    leaves = []
    for stack in zip(*(upload.point for upload in uploads), strict=True):
        total = np.zeros(stack[0].shape)
        for part, leaf in zip(share, stack, strict=True):
            total += part * leaf
        leaves.append(total.astype(stack[0].dtype))
    return tuple(leaves)
