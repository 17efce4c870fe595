"""Real files where they are present, and a cache that is never the user's own."""

from __future__ import annotations

import os
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def shared_data() -> Path:
    folder = Path(os.environ.get("SCAFFLIX_DATA") or Path(__file__).parents[3] / "shared" / "data")
    if not folder.is_dir():
        pytest.skip(f"no real data: {folder} is absent; set SCAFFLIX_DATA")
    return folder


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "cache"
    monkeypatch.setenv("SCAFFLIX_CACHE", str(folder))
    monkeypatch.delenv("SCAFFLIX_DATA", raising=False)
    return folder
