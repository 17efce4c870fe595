"""Models as modules of PyTorch, from rows to answers. Import this where PyTorch is known to be
there."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from scafflix.data.text import LENGTH
from scafflix.export.content import family, feature_names, layers, named_weights
from scafflix.models.cnn import SIDE
from scafflix.problems.restoring import restored

if TYPE_CHECKING:
    from scafflix.prediction import Predictor


def answering(predictor: Predictor) -> tuple[nn.Module, Tensor]:
    """From rows to answers, and rows of the kind that it takes."""
    if predictor.own is not None:
        made, shape = predictor.preprocessing, predictor.own.about["inputs"]["shape"]
        if made is not None:
            return OwnAnswers(predictor), torch.zeros(2, len(made.shift), dtype=torch.float64)
        return OwnAnswers(predictor), torch.zeros(2, *shape)
    if family(predictor) == "cnn":
        return _convolutions(predictor), torch.zeros(2, SIDE, SIDE, dtype=torch.uint8)
    if family(predictor) == "lstm":
        return Recurrent(named_weights(predictor)), torch.zeros(2, LENGTH, dtype=torch.uint8)
    names = feature_names(predictor)
    return _layers(predictor), torch.zeros(2, len(names), dtype=torch.float64)


class OwnAnswers(nn.Module):
    """A user's own module, with scaling before it."""

    shift: Tensor
    divisor: Tensor

    def __init__(self, predictor: Predictor) -> None:
        super().__init__()
        self.inner, self.predictor = own_module(predictor), predictor
        made = predictor.preprocessing
        self.scales, self.intercept = made is not None, made is not None and made.intercept
        if made is not None:
            self.register_buffer("shift", torch.tensor(made.shift))
            self.register_buffer("divisor", torch.tensor(made.divisor))

    def forward(self, examples: Tensor) -> Tensor:
        x = (examples - self.shift) / self.divisor if self.scales else examples
        if self.intercept:
            x = torch.cat([x, torch.ones_like(x[:, :1])], dim=1)
        return _answer(self.predictor, self.inner(x.to(torch.float32)))


def own_module(predictor: Predictor) -> nn.Module:
    """A user's own module with the arrays of the model."""
    assert predictor.own is not None
    own = predictor.own
    return restored(own.network, predictor.weights, own.about).module.eval()


def _layers(predictor: Predictor) -> nn.Module:
    made = predictor.preprocessing
    found = layers(named_weights(predictor), made is not None and made.intercept)
    width, dtype = len(found[0][0]), torch.from_numpy(found[0][1]).dtype
    shift, divisor = (
        (np.zeros(width), np.ones(width)) if made is None else (made.shift, made.divisor)
    )

    class Model(nn.Module):
        shift: Tensor
        divisor: Tensor

        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("shift", torch.tensor(shift))
            self.register_buffer("divisor", torch.tensor(divisor))
            self.layers = nn.ModuleList(_linear(matrix, bias) for matrix, bias in found)

        def forward(self, features: Tensor) -> Tensor:
            x = ((features - self.shift) / self.divisor).to(dtype)
            for number, layer in enumerate(self.layers):
                x = layer(torch.relu(x) if number else x)
            return _answer(predictor, x)

    return Model()


def _convolutions(predictor: Predictor) -> nn.Module:
    weights = named_weights(predictor)

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv1, self.conv2 = (
                _convolution(weights[f"{name}/weight"], weights[f"{name}/bias"])
                for name in ("conv1", "conv2")
            )
            self.hidden, self.output = (
                _linear(weights[f"{name}/weight"], weights[f"{name}/bias"])
                for name in ("hidden", "output")
            )

        def forward(self, images: Tensor) -> Tensor:
            ink = 1 - images[:, None].to(torch.float32) / 255
            shapes = torch.relu(self.conv2(torch.relu(self.conv1(ink))))
            pooled = nn.functional.max_pool2d(shapes, 2).permute(0, 2, 3, 1).flatten(1)
            return _answer(predictor, self.output(torch.relu(self.hidden(pooled))))

    return Model()


class Recurrent(nn.Module):
    """The LSTM: from codes of characters to logits of the next, at every place."""

    def __init__(self, weights: dict[str, NDArray[Any]]) -> None:
        super().__init__()
        arrays = {name: torch.tensor(array) for name, array in weights.items()}
        self.embedding = nn.Embedding(*arrays["embedding"].shape)
        self.embedding.load_state_dict({"weight": arrays["embedding"]})
        names = [name.removesuffix("/inputs") for name in weights if name.endswith("/inputs")]
        self.layers = nn.ModuleList()
        for name in sorted(names, key=lambda name: int(name.rpartition("/")[2])):
            inputs, states = arrays[f"{name}/inputs"], arrays[f"{name}/states"]
            layer = nn.LSTM(len(inputs), len(states), batch_first=True)
            bias = arrays[f"{name}/bias"]
            ours = (inputs.T, states.T, bias, torch.zeros_like(bias))
            layer.load_state_dict(dict(zip(layer.state_dict(), ours, strict=True)))
            self.layers.append(layer)
        self.output = _linear(weights["output/weight"], weights["output/bias"])

    def forward(self, codes: Tensor) -> Tensor:
        values = self.embedding(codes.long())
        for layer in self.layers:
            values, _ = layer(values)
        logits: Tensor = self.output(values)
        return logits


def _linear(matrix: NDArray[Any], bias: NDArray[Any]) -> nn.Linear:
    inputs, outputs = matrix.shape
    made = nn.Linear(inputs, outputs, dtype=torch.from_numpy(bias).dtype)
    made.load_state_dict({"weight": torch.tensor(matrix.T), "bias": torch.tensor(bias)})
    return made


def _convolution(kernel: NDArray[Any], bias: NDArray[Any]) -> nn.Conv2d:
    made = nn.Conv2d(kernel.shape[3], kernel.shape[0], 3)
    weight = torch.tensor(kernel.transpose(0, 3, 1, 2).copy())  # channels before pixels
    made.load_state_dict({"weight": weight, "bias": torch.tensor(bias)})
    return made


def _answer(predictor: Predictor, outputs: Tensor) -> Tensor:
    """From outputs `[rows, ...]` to probabilities, or to numbers."""
    if not predictor.classes:
        alone = outputs.ndim == 2 and outputs.shape[1] == 1
        return outputs[:, 0] if alone else outputs
    outputs = outputs[:, : len(predictor.classes)] if predictor.own else outputs
    if predictor.model == "logistic":
        return torch.sigmoid(torch.cat([-outputs, outputs], dim=1))
    return torch.softmax(outputs.to(torch.float64), dim=1)
