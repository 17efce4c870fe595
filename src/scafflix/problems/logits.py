"""Losses and scores of logits, and forecasts in bins. Import this where PyTorch is known to be
there."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from scafflix.models.calibration import BINS


def cross_entropy(logits: Tensor, labels: Tensor) -> Tensor:
    """Averaged over the labels that are not negative."""
    if labels.ndim == 1:
        return nn.functional.cross_entropy(logits, labels)
    flat = labels.reshape(-1).clamp(min=-1)
    total = nn.functional.cross_entropy(
        logits.reshape(len(flat), -1), flat, ignore_index=-1, reduction="sum"
    )
    return total / (flat >= 0).sum().clamp(min=1)


def losses(logits: Tensor, labels: Tensor) -> Tensor:
    """Cross-entropy, summed over the labels of each example that are not negative."""
    flat = labels.reshape(-1).clamp(min=-1)
    made = nn.functional.cross_entropy(
        logits.reshape(len(flat), -1), flat, ignore_index=-1, reduction="none"
    )
    return made.reshape(len(labels), -1).sum(1)


def in_bins(logits: Tensor, labels: Tensor) -> NDArray[np.float64]:
    """How many forecasts are in each bin, the sum of them, and how many came true."""
    probability = logits.softmax(-1)
    if logits.shape[-1] == 2:
        forecast, true = probability[..., 1], labels == 1
    else:
        forecast, true = probability.amax(-1), logits.argmax(-1) == labels
    forecast = forecast.nan_to_num()  # of a run that diverges
    place = (forecast * BINS).floor().clamp(0, BINS - 1).long().reshape(-1)
    counted = (labels >= 0).double().reshape(-1)
    rows = (counted, counted * forecast.reshape(-1), counted * true.reshape(-1))
    sums = [torch.bincount(place, row, BINS) for row in rows]
    return np.stack([one.cpu().numpy() for one in sums])


def accuracy(logits: Tensor, labels: Tensor) -> Tensor:
    """The share of labels that have the largest logit, among those that are not negative."""
    counted = labels >= 0
    right = (logits.argmax(dim=-1) == labels) & counted
    return right.sum().double() / counted.sum().clamp(min=1)
