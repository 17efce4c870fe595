"""Points of PyTorch tensors, evaluated step after step."""

from __future__ import annotations

from collections.abc import Callable

import pytest

pytest.importorskip(
    "torch",
    reason="PyTorch (large) is not installed; pip install 'scafflix[torch]'",
)

import torch

from scafflix.core.tensors import InPlace, Tensors


def point(value: float) -> Tensors:
    return Tensors({"weight": torch.tensor([value])})


def test_a_step_is_written_over_the_one_before_and_over_nothing_else() -> None:
    given, g = point(1.0), point(1.0)
    step = InPlace()
    first = step({"x": given - 0.5 * g})
    assert given.tree["weight"].item() == 1.0
    memory = first["x"].tree["weight"]
    second = step({"x": first["x"] - 0.5 * g})
    assert second["x"].tree["weight"] is memory
    assert memory.item() == 0.0
    assert g.tree["weight"].item() == 1.0


@pytest.mark.parametrize("other", [lambda x: x, lambda x: 3.0 * x, lambda x: x + point(1.0)])
def test_what_another_point_of_the_step_needs_is_not_written_over(
    other: Callable[[Tensors], Tensors],
) -> None:
    for names in (("new", "old"), ("old", "new")):
        step = InPlace()
        x = step({"x": point(2.0) - 0.5 * point(2.0)})["x"]
        after = {"new": lambda x: x - 0.5 * point(2.0), "old": other}
        made = step({name: after[name](x) for name in names})
        assert made["new"].tree["weight"].item() == 0.0
        assert made["old"].tree["weight"].item() == other(point(1.0)).tree["weight"].item()


def test_what_was_kept_over_a_step_is_not_written_over() -> None:
    step = InPlace()
    x = step({"x": point(2.0) - 0.5 * point(2.0)})["x"]
    kept = step({"x": x - point(1.0), "start": x})
    after = step({"x": kept["start"] - point(5.0), "start": kept["start"]})
    assert after["start"].tree["weight"].item() == 1.0
