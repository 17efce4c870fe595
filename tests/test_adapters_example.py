"""`examples/adapters.py`, on a few made-up roles."""

from __future__ import annotations

import json
import runpy
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip(
    "torch", reason="PyTorch (large) is not installed; pip install 'scafflix[torch]'"
)
EXAMPLE = Path(__file__).parents[1] / "examples" / "adapters.py"


def test_adapters_alone_are_trained_sent_and_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SCAFFLIX_CACHE", str(tmp_path / "cache"))
    random = np.random.default_rng(0)
    words = ["to be", "or not", "to die", "to sleep", "no more"]
    lines = [[" ".join(random.choice(words, 12)) for _ in range(40)] for _ in range(4)]
    roles = [{"play": "P", "role": f"R{k}", "lines": own} for k, own in enumerate(lines)]
    Path("roles.jsonl").write_text("".join(json.dumps(role) + "\n" for role in roles))
    asked = "--data roles.jsonl --clients 3 --least 10 --width 8 --layers 1 --steps 3 --rank 2"
    main = runpy.run_path(str(EXAMPLE))["main"]
    records = main([*asked.split(), "--rounds", "2", "--cohort", "2"])
    size = 2 * 2 * (8 + 8)  # queries and values: two thin matrices each
    assert f"{size} parameters in adapters" in capsys.readouterr().out
    assert len(records) == 2
    for record in records.values():
        assert record.summary["dim"] == size
        assert record.metrics["bits_up"][-1] == 2 * 2 * 32 * size
        assert record.metrics["bits_down"][-1] == 2 * 2 * 32 * size
        arrays = {name.partition("/")[2] for name in record.models}
        pairs = [(a, b) for a in ("query", "value") for b in ("down", "up")]
        assert arrays == {f"blocks.0.{a}.{b}.weight" for a, b in pairs}
