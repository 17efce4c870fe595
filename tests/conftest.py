"""Real files where they are present, and the small problems that many tests share."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from cases import KINDS, Case
from cases import case as make_case


@pytest.fixture(scope="session")
def shared_data() -> Path:
    folder = Path(os.environ.get("SCAFFLIX_DATA") or Path(__file__).parents[2] / "shared" / "data")
    if not folder.is_dir():
        pytest.skip(f"no real data: {folder} is absent; set SCAFFLIX_DATA")
    return folder


@pytest.fixture(scope="session", params=KINDS)
def case(request: pytest.FixtureRequest) -> Case:
    """One problem for each model."""
    return make_case(request.param)


@pytest.fixture(scope="session")
def logistic_case() -> Case:
    return make_case("logistic")


@pytest.fixture(scope="session")
def linear_case() -> Case:
    return make_case("linear")
