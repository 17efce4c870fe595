"""A PyTorch module in the simulator: the same models as the same network in JAX."""

from __future__ import annotations

from collections.abc import Callable

import pytest

pytest.importorskip(
    "torch",
    reason="PyTorch (large) is not installed; pip install 'scafflix[torch]'",
)

from made_up import made_up
from scafflix.methods import METHODS, Method
from scafflix.methods.private import private
from scafflix.theory import Plan
from torch_pairs import assert_equal, records

EVERY: dict[str, Callable[..., Method]] = {**METHODS, "made_up": made_up}


@pytest.mark.parametrize("name", EVERY)
def test_every_method_makes_the_models_that_it_makes_in_jax(name: str) -> None:
    assert_equal(*records("dense", EVERY[name]), close=3e-5)


def test_capped_control_variates_are_those_of_jax() -> None:
    assert_equal(*records("dense", lambda plan: METHODS["scafflix"](plan, cap=0.5)), close=3e-5)


def test_noise_at_the_server_is_that_of_jax() -> None:
    def noisy(plan: Plan) -> Method:
        return private(METHODS["fedavg"](plan), 0.5, 0.2, noise_at="server")

    assert_equal(*records("dense", noisy), close=3e-5)
