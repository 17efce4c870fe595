"""Torture: what breaks things on purpose, a little of it always, all of it with `--torture`."""

from __future__ import annotations

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--torture", action="store_true", help="as much as `make torture` does")


@pytest.fixture(scope="session")
def torture(request: pytest.FixtureRequest) -> bool:
    """Whether everything is asked for; the option exists where this folder is named."""
    return bool(request.config.getoption("--torture", default=False))
