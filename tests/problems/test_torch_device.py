"""Where a PyTorch module computes: on a CUDA device if there is one. None is needed here."""

from __future__ import annotations

import numpy as np
import pytest

import scafflix as sx

torch = pytest.importorskip(
    "torch",
    reason="PyTorch (large) is not installed; pip install 'scafflix[torch]'",
)


def test_a_cuda_device_is_taken_where_pytorch_sees_one(monkeypatch: pytest.MonkeyPatch) -> None:
    from scafflix.problems.pytorch import best_device

    for there, kind in ((True, "cuda"), (False, "cpu")):
        monkeypatch.setattr(torch.cuda, "is_available", lambda there=there: there)
        assert best_device().type == kind


def test_module_examples_and_points_are_on_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """A meta device, which computes nothing, stands for it; one client follows another."""
    from scafflix.core.tensors import in_tensors
    from scafflix.problems import pytorch as functions
    from scafflix.problems.modules import Module

    monkeypatch.setattr(functions, "best_device", lambda: torch.device("meta"))
    monkeypatch.setattr(Module, "check", lambda self, inputs, labels: 3)
    fed = sx.data.from_clients({name: (np.ones((4, 2)), [0, 1, 2, 0]) for name in "ab"})
    labels = {name: part.labels for name, part in fed.parts.items()}
    network = sx.models.from_torch(lambda: torch.nn.Linear(2, 3))
    made = functions.TorchFunctions(network, 0.0, fed.parts, labels)
    assert {p.device.type for p in made._first.module.parameters()} == {"meta"}
    assert made.parts["train"].inputs.device.type == "meta"
    assert in_tensors(made.start(0), made.device).tree["weight"].device.type == "meta"
    assert made._pool is None
