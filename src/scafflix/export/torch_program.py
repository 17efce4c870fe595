"""A model as a program of `torch.export`, in a .pt2 file without pickle.

It takes features as `Preprocessing.names` has them, in the columns' own units: a number for each
column of numbers, 0 or 1 for each value of a text. Scaling is inside.
"""

from __future__ import annotations

import io
import json
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from scafflix.core.extras import library
from scafflix.data.tabular import columns_for
from scafflix.export.content import facts, family, feature_names, layers, named_weights
from scafflix.models.cnn import SIDE

if TYPE_CHECKING:
    from torch import Tensor, nn

    from scafflix.prediction import Predictor

FACTS = "scafflix.json"  # beside the program, in the same file


def torch_content(predictor: Predictor) -> bytes:
    """The bytes of the file."""
    torch = library("torch", "torch")
    if family(predictor.model) == "cnn":
        module, example = _convolutions(predictor), torch.zeros(2, SIDE, SIDE, dtype=torch.uint8)
    else:
        module = _layers(predictor)
        example = torch.zeros(2, len(feature_names(predictor)), dtype=torch.float64)
    rows = ({0: torch.export.Dim("rows")},)
    program = torch.export.export(module.eval(), (example,), dynamic_shapes=rows)
    program.example_inputs = None  # they would be kept as a pickle
    words = {**facts(predictor), "features": list(_names(predictor))}
    file = io.BytesIO()
    torch.export.save(program, file, extra_files={FACTS: json.dumps(words, allow_nan=False)})
    return file.getvalue()


def torch_answers(content: bytes, predictor: Predictor, given: Any) -> NDArray[Any]:
    """The probabilities, or the numbers, that the program finds for rows as `predictor` takes
    them."""
    torch = library("torch", "torch")
    made = predictor.preprocessing
    table = made is not None and made.columns
    rows = made.encode(columns_for(made, given)) if made and table else np.asarray(given)
    found = torch.export.load(io.BytesIO(content)).module()(torch.from_numpy(rows))
    return np.asarray(found.detach().numpy())


def _names(predictor: Predictor) -> tuple[str, ...]:
    return () if family(predictor.model) == "cnn" else feature_names(predictor)


def _layers(predictor: Predictor) -> nn.Module:
    import torch
    from torch import nn

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
    import torch
    from torch import nn

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


def _linear(matrix: NDArray[Any], bias: NDArray[Any]) -> nn.Linear:
    import torch
    from torch import nn

    inputs, outputs = matrix.shape
    made = nn.Linear(inputs, outputs, dtype=torch.from_numpy(bias).dtype)
    made.load_state_dict({"weight": torch.tensor(matrix.T), "bias": torch.tensor(bias)})
    return made


def _convolution(kernel: NDArray[Any], bias: NDArray[Any]) -> nn.Conv2d:
    import torch
    from torch import nn

    made = nn.Conv2d(kernel.shape[3], kernel.shape[0], 3)
    weight = torch.tensor(kernel.transpose(0, 3, 1, 2).copy())  # channels before pixels
    made.load_state_dict({"weight": weight, "bias": torch.tensor(bias)})
    return made


def _answer(predictor: Predictor, outputs: Tensor) -> Tensor:
    """From outputs `[rows, ...]` to probabilities, or to numbers."""
    import torch

    if not predictor.classes:
        return outputs[:, 0]
    if predictor.model == "logistic":
        return torch.sigmoid(torch.cat([-outputs, outputs], dim=1))
    return torch.softmax(outputs.to(torch.float64), dim=1)
