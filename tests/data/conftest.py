"""A cache that is never the user's own."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "cache"
    monkeypatch.setenv("SCAFFLIX_CACHE", str(folder))
    monkeypatch.delenv("SCAFFLIX_DATA", raising=False)
    return folder
