"""A PyTorch module of one's own in a federation: a small network on handwritten digits.

scafflix deploy local --nodes 3 --config examples/torch_node.toml \
    --learner examples/torch_node.py:learner

On separate machines every node has this file: scafflix deploy node --learner torch_node.py:learner
"""

from __future__ import annotations

from pathlib import Path

from safetensors.torch import load_file
from torch import Tensor, nn

from scafflix.federate.pytorch import torch_learner


class Digits(nn.Module):
    """64 pixels to 10 classes."""

    def __init__(self) -> None:
        super().__init__()
        self.hidden = nn.Linear(64, 32)
        self.output = nn.Linear(32, 10)

    def forward(self, pixels: Tensor) -> Tensor:
        return self.output(nn.functional.relu(self.hidden(pixels / 16)))


learner = torch_learner(Digits)


def personal_model(file: Path) -> nn.Module:
    """A client's own model, from what its node saved."""
    module = Digits()
    module.load_state_dict(load_file(file))
    return module.eval()


def global_model(record: Path) -> nn.Module:
    """The model that all share, from the server's record."""
    module, saved = Digits(), load_file(record / "models.safetensors")
    module.load_state_dict({name.removeprefix("global/"): array for name, array in saved.items()})
    return module.eval()
