"""Our networks in PyTorch, with parameters of the same names, order and shapes as in JAX."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

import jax
import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import conv2d, max_pool2d

import scafflix as sx
from scafflix.core.vector import names_of


class Twin(nn.Module):
    """Zeros in the place of every array of a network in JAX; dots for slashes in names."""

    def __init__(self, network: sx.models.Network) -> None:
        super().__init__()
        template = jax.eval_shape(network.init, jax.random.key(0))
        for name, leaf in zip(names_of(template), jax.tree.leaves(template), strict=True):
            self.place(name.split("/"), nn.Parameter(torch.zeros(leaf.shape)))

    def place(self, path: list[str], parameter: nn.Parameter) -> None:
        module: nn.Module = self
        for part in path[:-1]:
            if not hasattr(module, part):
                module.add_module(part, nn.Module())
            module = getattr(module, part)
        module.register_parameter(path[-1], parameter)


class Dense(Twin):
    def forward(self, inputs: Tensor) -> Tensor:
        layers = list(self.children())
        for layer in layers[:-1]:
            inputs = torch.relu(inputs @ layer.weight + layer.bias)
        return inputs @ layers[-1].weight + layers[-1].bias


class CNN(Twin):
    def forward(self, images: Tensor) -> Tensor:
        ink = (1 - images / 255)[:, None]
        edges = torch.relu(convolved(self.conv1, ink))
        shapes = torch.relu(max_pool2d(convolved(self.conv2, edges), 2))
        flat = shapes.permute(0, 2, 3, 1).flatten(1)
        features = torch.relu(flat @ self.hidden.weight + self.hidden.bias)
        return features @ self.output.weight + self.output.bias


def convolved(layer: Any, images: Tensor) -> Tensor:
    return conv2d(images, layer.weight.permute(0, 3, 1, 2), layer.bias)


class LSTM(Twin):
    def forward(self, codes: Tensor) -> Tensor:
        values = self.embedding[codes.long()]
        for layer in self.layers.children():
            values = recurrent(layer, values)
        return values @ self.output.weight + self.output.bias


def recurrent(layer: Any, values: Tensor) -> Tensor:
    state = cell = values.new_zeros(len(values), len(layer.states))
    made = []
    for drive in (values @ layer.inputs + layer.bias).unbind(1):
        i, f, g, o = (drive + state @ layer.states).chunk(4, dim=-1)
        cell = torch.sigmoid(f) * cell + torch.sigmoid(i) * torch.tanh(g)
        state = torch.sigmoid(o) * torch.tanh(cell)
        made.append(state)
    return torch.stack(made, dim=1)


KINDS = {"dense": Dense, "cnn": CNN, "lstm": LSTM}


def twin(network: sx.models.Network) -> sx.models.TorchNetwork:
    """The same network in PyTorch."""
    return sx.models.from_torch(lambda: KINDS[network.name](network), name=network.name)


def in_torch(tree: Any) -> OrderedDict[str, Any]:
    """Parameters in JAX as those of the twin."""
    pairs = zip(names_of(tree), jax.tree.leaves(tree), strict=True)
    return OrderedDict((name.replace("/", "."), np.asarray(leaf)) for name, leaf in pairs)
