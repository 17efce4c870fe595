"""The three models and their data in PyTorch, for every peer that trains with it."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from peers.task import LOOKED_AT, Task


class Characters(nn.Module):
    """Embedding, two LSTM layers, logits at every position."""

    def __init__(self, symbols: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(symbols, 8)
        self.lstm = nn.LSTM(8, 256, num_layers=2, batch_first=True)
        self.output = nn.Linear(256, symbols)

    def forward(self, codes: Tensor) -> Tensor:
        return self.output(self.lstm(self.embedding(codes))[0])


def make_model(task: Task) -> nn.Module:
    """The network of a task with PyTorch's own random start."""
    torch.manual_seed(0)
    classes = task.recipe.classes
    if task.recipe.model == "cnn":
        return nn.Sequential(
            nn.Conv2d(1, 32, 3), nn.ReLU(), nn.Conv2d(32, 64, 3), nn.ReLU(), nn.MaxPool2d(2),
            nn.Flatten(), nn.Linear(9216, 128), nn.ReLU(), nn.Linear(128, classes),
        ).to(memory_format=torch.channels_last)  # fmt: skip
    if task.recipe.model == "lstm":
        return Characters(classes)
    return nn.Linear(task.inputs.shape[1], classes)


class Examples:
    """Batches as the model takes them.

    Images and texts are converted once; the rows of a million clients when they are used.
    """

    def __init__(self, task: Task) -> None:
        self.model = task.recipe.model
        self.labels = torch.tensor(np.asarray(task.labels), dtype=torch.int64)
        if self.model == "cnn":
            images = 1 - np.asarray(task.inputs)[:, None].astype(np.float32) / 255
            self.inputs = torch.tensor(images).to(memory_format=torch.channels_last)
        elif self.model == "lstm":
            self.inputs = torch.tensor(np.asarray(task.inputs), dtype=torch.int64)
        else:
            self.inputs = torch.from_numpy(np.asarray(task.inputs))

    def batch(self, rows: Any) -> tuple[Tensor, Tensor]:
        chosen = torch.as_tensor(rows)
        inputs = self.inputs[chosen]
        return inputs.float() if self.model == "logistic" else inputs, self.labels[chosen]


def loss_of(logits: Tensor, labels: Tensor) -> Tensor:
    """Mean cross-entropy over all places that have a label."""
    return nn.functional.cross_entropy(
        logits.reshape(-1, logits.shape[-1]), labels.reshape(-1), ignore_index=-1
    )


def first_loss(model: nn.Module, examples: Examples) -> float:
    """The loss on the first examples, the same for every peer."""
    with torch.no_grad():
        inputs, labels = examples.batch(np.arange(LOOKED_AT))
        return float(loss_of(model(inputs), labels))
